"""schemathesis against the server's own /openapi.json: no 5xx, no status, type of content or shape that the document does not have.

Usage: openapi_test.py PROGRAM MODEL.gguf [EXAMPLES]. Exit code 77 (skipped) where schemathesis or the model is missing."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance"


def main():
    program, path = sys.argv[1:3]
    examples = sys.argv[3] if len(sys.argv) > 3 else "25"
    try:
        import schemathesis
    except ImportError:
        print("skipped: schemathesis is not installed (python3 -m pip install schemathesis)")
        return SKIPPED
    if not Path(path).exists():
        print(f"skipped: there is no {path}")
        return SKIPPED
    # A small context keeps answers short that say no max_tokens.
    server = subprocess.Popen([program, "serve", path, "--port", "0", "-c", "64", "-np", "4", "--pooling", "mean", "--log-disable"], stderr=subprocess.PIPE, text=True)
    try:
        line = server.stderr.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert port, line
        base = f"http://127.0.0.1:{port[1]}"
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-m", "schemathesis.cli", "run", f"{base}/openapi.json", "--url", base, "--checks", CHECKS, "--max-examples", examples,
                                   "--seed", "1", "--phases", "examples,coverage,fuzzing", "--mode", "all", "--generation-database", "none", "--request-timeout", "60",
                                   "--no-color"], cwd=folder, env=os.environ | {"PYTHONWARNINGS": "ignore"})
        print(f"schemathesis {schemathesis.__version__}: exit code {done.returncode}")
        assert server.poll() is None, "the server has ended"
        return done.returncode
    finally:
        server.terminate()
        server.wait(timeout=60)


if __name__ == "__main__":
    sys.exit(main())
