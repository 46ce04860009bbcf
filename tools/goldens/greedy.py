"""Greedy tokens of llama.cpp and of assay after the same prompt: one line a golden.

usage: greedy.py LLAMA_LOGITS ASSAY FOLDER [NAME...]

LLAMA_LOGITS MODEL IDS.txt OUT.f32 writes llama.cpp's logits of every position as float32 (a program over its library; with KV=1 its cache is float32). Of each
golden in FOLDER (NAME.gguf, NAME.json) that is no encoder the prompt is run by both, its weights as F32 (of F16 ones llama.cpp rounds what they multiply to half
precision), and the likeliest token taken, N_TOKENS times each on its own. `equal`, or where they part: assay's two likeliest logits there, and how far
llama.cpp's differ from assay's for the same tokens.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

N_TOKENS = 24


def of_llama_cpp(program, model, ids, folder):
    (folder / "ids.txt").write_text(" ".join(map(str, ids)))
    subprocess.run([program, str(model), str(folder / "ids.txt"), str(folder / "out"), "1"], check=True, capture_output=True, env=dict(os.environ, KV="1"))
    return np.fromfile(folder / "out", dtype=np.float32).reshape(len(ids), -1)[-1].astype(float)


def of_assay(program, model, ids):
    done = subprocess.run([program, "logits", str(model), "--ids", ",".join(map(str, ids)), "--top", "2", "--json", "--numerics", "f32", "-ctk", "f32", "-ctv", "f32", "-t", "1"],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["top"]


def compared(llama_logits, assay, model, ids, folder):
    theirs, ours = list(ids), list(ids)
    for step in range(N_TOKENS):
        found, top = of_llama_cpp(llama_logits, model, theirs, folder), of_assay(assay, model, ours)
        theirs.append(int(found.argmax()))
        ours.append(top[0][0])
        if theirs[-1] != ours[-1]:
            apart = max(abs(found[token] - logit) for token, logit in top)
            return f"parts at token {step + 1}: {top[0][1]:.5f} and {top[1][1]:.5f}, llama.cpp's differ by {apart:.1e}"
    return "equal"


def main():
    llama_logits, assay, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    for path in sorted(folder.glob("*.json")):
        golden = json.loads(path.read_text())
        if "embedding" in golden or (sys.argv[4:] and path.stem not in sys.argv[4:]):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            wide = pathlib.Path(temporary) / "f32.gguf"
            try:
                subprocess.run([assay, "quantize", str(path.with_suffix(".gguf")), str(wide), "f32"], check=True, capture_output=True)
                said = compared(llama_logits, assay, wide, golden["ids"][:12], pathlib.Path(temporary))
            except subprocess.CalledProcessError as refused:
                said = f"{refused.cmd[0]} refuses it"
        print(f"{path.stem}: {said}", flush=True)


if __name__ == "__main__":
    main()
