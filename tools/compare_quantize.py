#!/usr/bin/env python3
"""The table of docs/quantize.md: assay quantize beside llama-quantize, type by type.

usage: tools/compare_quantize.py ASSAY PEER MODEL-BF16.gguf TEXT --state FILE.jsonl [--imatrix FILE] [-c N] [--chunks N] [--types A,B...] [--rounds N] [--lanes N] [--divergences PROGRAM]

PEER is a folder with llama-quantize, or libggml-base.so of the same build: then theirs is our file with every tensor encoded anew by ggml_quantize_chunk,
which is what llama-quantize writes where the types are the same (src/quantize/recipe_test.cpp holds them to be); needs gguf and numpy.

Of each type: the bytes, the mean over the tensors of the root mean square error, the KL divergence to MODEL over TEXT with the standard error of the quotient
(both files are scored on the same tokens), and the median seconds of both programs, in turn, on 2 threads. With --lanes that many rows are made at a time, each on
two processors of its own. --divergences is tools/divergences.cpp: it keeps MODEL's logits, so that MODEL runs once and not beside each file. With llama-perplexity in PEER every file of assay's is also run by it; exit 1 where one does not run.

Each row goes to FILE as soon as it is there: a run that was stopped goes on where it was, and rows of another assay, model, matrix or text stay apart.
The table is printed at the end, of all rows of FILE."""

import argparse
import concurrent.futures
import ctypes
import json
import math
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

NINE = "Q4_0 Q5_0 Q8_0 Q4_K_M Q5_K_M Q6_K Q3_K_M IQ4_NL IQ4_XS".split()
TYPES = NINE + ("Q4_1 Q5_1 Q2_K Q3_K_S Q3_K_L Q4_K_S Q5_K_S IQ3_XS IQ3_S IQ3_M TQ1_0 TQ2_0 MXFP4_MOE "
                "Q2_K_S IQ3_XXS IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ1_S").split()
NEED_MATRIX = {"Q2_K_S", "IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS"}
lane = threading.local()  # .pins: what a lane's programs are started by


def run(*command):
    done = subprocess.run([*getattr(lane, "pins", []), *command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


class Library:
    """Theirs by ggml_quantize_chunk."""

    def __init__(self, path):
        self.encode = ctypes.CDLL(path).ggml_quantize_chunk
        self.encode.restype = ctypes.c_size_t
        self.encode.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]

    def write(self, asked, ours, theirs, _name):
        """No seconds: what is timed is llama-quantize."""
        import numpy
        from gguf import GGUFReader
        from gguf.quants import dequantize
        importance = {}
        if asked.imatrix:
            matrix = {t.name: t.data for t in GGUFReader(asked.imatrix).tensors}
            importance = {n[:-len(".in_sum2")]: (x / matrix[n[:-len("in_sum2")] + "counts"]).astype(numpy.float32).ravel()
                          for n, x in matrix.items() if n.endswith(".in_sum2")}
        shutil.copyfile(ours, theirs)
        sources = {t.name: t for t in GGUFReader(asked.model).tensors}
        for tensor in GGUFReader(theirs, "r+").tensors:
            source = sources[tensor.name]
            if tensor.tensor_type == source.tensor_type:
                continue
            x = numpy.ascontiguousarray(dequantize(source.data, source.tensor_type), dtype=numpy.float32)
            columns = int(tensor.shape[0])
            weights = importance.get(tensor.name)
            n = self.encode(int(tensor.tensor_type), x.ctypes.data, tensor.data.ctypes.data, 0, x.size // columns, columns,
                            None if weights is None else weights.ctypes.data)
            assert n == tensor.n_bytes, (tensor.name, n, tensor.n_bytes)
            tensor.data.flush()


class Programs:
    def __init__(self, folder):
        self.folder = folder

    def command(self, asked, theirs, name):
        flags = ["--imatrix", asked.imatrix] if asked.imatrix else []
        return [os.path.join(self.folder, "llama-quantize")] + flags + [asked.model, theirs, name, "2"]

    def write(self, asked, _ours, theirs, name):
        return timed(self.command(asked, theirs, name))


def our_command(asked, ours, name):
    flags = ["--imatrix", asked.imatrix] if asked.imatrix else []
    return [asked.assay, "quantize", asked.model, ours, name, "-t", "2"] + flags


def rmse(assay, original, file):
    rows = json.loads(run(assay, "diff", original, file, "--json"))["tensors"]
    errors = [row["rmse"] for row in rows if row.get("rmse")]
    return sum(errors) / len(errors)


def kept_divergences(asked, file):
    """Of every scored token, by a program of this lane that has MODEL's logits."""
    if not hasattr(lane, "base"):
        lane.base = subprocess.Popen([*getattr(lane, "pins", []), asked.divergences, asked.model, asked.text, str(asked.context), str(asked.chunks), "2"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lane.base.stdin.write(file + "\n")
    lane.base.stdin.flush()
    line = lane.base.stdout.readline()
    if not line or line.startswith("error"):
        raise RuntimeError(f"{asked.divergences} {file}: {line or 'ended'}")
    return [float(x) for x in line.split()]


def divergences(asked, file):
    """Of every scored token."""
    if asked.divergences:
        return kept_divergences(asked, file)
    told = run(asked.assay, "perplexity", file, "-f", asked.text, "-c", str(asked.context), "--chunks", str(asked.chunks), "-t", "2", "--against", asked.model,
               "--json", "--per-token")
    return [token["kl_divergence"] for token in json.loads(told)["tokens"]]


def quotient_error(ours, theirs):
    """The standard error of mean(ours) / mean(theirs), of the same tokens."""
    n, whole = len(ours), sum(theirs) / len(theirs)
    quotient = sum(ours) / n / whole
    return math.sqrt(sum((a - quotient * b) ** 2 for a, b in zip(ours, theirs)) / (n - 1) / n) / whole


def timed(command):
    begin = time.monotonic()
    run(*command)
    return time.monotonic() - begin


def row_of(asked, peer, name, folder):
    ours, theirs = os.path.join(folder, f"ours-{name}.gguf"), os.path.join(folder, f"theirs-{name}.gguf")
    both = [(timed(our_command(asked, ours, name)), peer.write(asked, ours, theirs, name)) for _ in range(asked.rounds)]
    row = {"type": name, "bytes": [os.path.getsize(ours), os.path.getsize(theirs)],
           "rmse": [rmse(asked.assay, asked.model, file) for file in (ours, theirs)]}
    if isinstance(peer, Programs):
        row["seconds"] = [statistics.median(side) for side in zip(*both)]
    if asked.chunks:
        tokens = [divergences(asked, file) for file in (ours, theirs)]
        row["kld"] = [sum(side) / len(side) for side in tokens]
        row["kld_error"] = quotient_error(*tokens)
    runner = os.path.join(asked.peer, "llama-perplexity")
    if os.path.exists(runner):
        row["runs"] = subprocess.run([runner, "-m", ours, "-f", asked.text, "-c", "64", "--chunks", "2"], capture_output=True).returncode == 0
    os.remove(ours)
    os.remove(theirs)
    return row


def all_rows(asked, peer, names, done):
    """A row at a time for each lane; done(row) of each as it is there. Returns the types that failed."""
    pins, failed = queue.Queue(), []
    for i in range(asked.lanes):
        pins.put(["taskset", "-c", f"{2 * i},{2 * i + 1}"] if asked.lanes > 1 else [])

    def one(name):
        if not hasattr(lane, "pins"):  # for good: what a lane keeps running has its processors too
            lane.pins = pins.get()
        return row_of(asked, peer, name, folder)

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(asked.lanes) as pool:
        futures = {pool.submit(one, name): name for name in names}
        for future in concurrent.futures.as_completed(futures):
            try:
                done(future.result())
            except RuntimeError as error:
                print(f"{futures[future]}: {error}", file=sys.stderr)
                failed.append(futures[future])
    return failed


def quotient(pair):
    return pair[0] / pair[1]


def table(rows):
    print("| type | bytes | theirs | RMSE | theirs | quotient | KLD | theirs | quotient | s | theirs | quotient |\n" + "|---" * 12 + "|")
    for row in rows:
        cells = [row["type"]] + [f"{n:,}" for n in row["bytes"]] + [f"{x:.4g}" for x in row["rmse"]] + [f"{quotient(row['rmse']):.3f}"]
        cells += [f"{x:.4g}" for x in row["kld"]] + [f"{quotient(row['kld']):.3f} ± {row['kld_error']:.3f}"] if "kld" in row else [""] * 3
        cells += [f"{s:.1f}" for s in row["seconds"]] + [f"{quotient(row['seconds']):.2f}"] if "seconds" in row else [""] * 3
        print("| " + " | ".join(cells) + " |")
    nine = [row for row in rows if row["type"] in NINE]
    if len(nine) < len(NINE):
        return
    print(f"\nThe nine: RMSE {max(quotient(row['rmse']) for row in nine):.3f} at most", end="")
    if all("kld" in row for row in nine):
        klds = [quotient(row["kld"]) for row in nine]
        print(f"; KLD geometric mean {math.exp(sum(map(math.log, klds)) / len(klds)):.3f}, largest {max(klds):.3f}", end="")
    if all("seconds" in row for row in nine):
        ours, theirs = (sum(row["seconds"][side] for row in nine) for side in (0, 1))
        print(f"; seconds {ours:.1f} to {theirs:.1f}: {ours / theirs:.2f}, largest {max(quotient(row['seconds']) for row in nine):.2f}", end="")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("assay", "peer", "model", "text"):
        parser.add_argument(name)
    parser.add_argument("--state", required=True)
    parser.add_argument("--imatrix")
    parser.add_argument("-c", dest="context", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=8, help="of that many tokens, whose second halves are scored; 0 leaves the divergence out")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--divergences")
    asked = parser.parse_args()
    peer = Programs(asked.peer) if os.path.isdir(asked.peer) else Library(asked.peer)
    key = {"assay": run(asked.assay, "--version").splitlines()[0], "model": os.path.basename(asked.model), "matrix": bool(asked.imatrix),
           "text": os.path.basename(asked.text), "context": asked.context, "chunks": asked.chunks}
    rows = []
    if os.path.exists(asked.state):
        with open(asked.state) as lines:
            rows = [row for row in map(json.loads, lines) if all(row.get(k) == v for k, v in key.items())]
    had = {row["type"] for row in rows}
    wanted = [name for name in asked.types.split(",") if name not in had and (asked.imatrix or name not in NEED_MATRIX)]

    def done(row):
        rows.append({**key, **row})
        with open(asked.state, "a") as out:
            out.write(json.dumps(rows[-1]) + "\n")

    failed = all_rows(asked, peer, wanted, done)
    table(sorted(rows, key=lambda row: TYPES.index(row["type"])))
    fails = [row["type"] for row in rows if row.get("runs") is False]
    if fails or failed:
        sys.exit(f"llama.cpp does not run: {' '.join(fails) or 'none'}; failed: {' '.join(failed) or 'none'}")


if __name__ == "__main__":
    main()
