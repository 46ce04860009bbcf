#!/usr/bin/env python3
"""The table of docs/quantize.md: assay quantize beside llama-quantize, type by type.

usage: tools/compare_quantize.py ASSAY PEER MODEL-BF16.gguf TEXT --state FILE.jsonl [--imatrix FILE] [--chunks N] [--types A,B...] [--seconds ROUNDS]

PEER is a folder with llama-quantize, or libggml-base.so of the same build: then theirs is our file with every tensor encoded anew by ggml_quantize_chunk,
which is what llama-quantize writes where the types are the same (src/quantize/recipe_test.cpp holds them to be); needs gguf and numpy.

Of each type: the mean over the tensors of the root mean square error, the KL divergence to MODEL over TEXT, the bytes, and with --seconds the median seconds
of both programs, in turn, on 2 threads. With llama-perplexity in PEER every file of assay's is also run by it; exit 1 where one does not run.

Each row goes to FILE as soon as it is there: a run that was stopped goes on where it was, and rows of another assay, model, matrix or text stay apart.
The table is printed at the end, of all rows of FILE."""

import argparse
import ctypes
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

NINE = "Q4_0 Q5_0 Q8_0 Q4_K_M Q5_K_M Q6_K Q3_K_M IQ4_NL IQ4_XS".split()
TYPES = NINE + ("Q4_1 Q5_1 Q2_K Q3_K_S Q3_K_L Q4_K_S Q5_K_S IQ3_XS IQ3_S IQ3_M TQ1_0 TQ2_0 MXFP4_MOE "
                "Q2_K_S IQ3_XXS IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ1_S").split()
NEED_MATRIX = {"Q2_K_S", "IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS"}
CONTEXT = 256


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


class Library:
    """Theirs by ggml_quantize_chunk."""

    def __init__(self, path):
        self.encode = ctypes.CDLL(path).ggml_quantize_chunk
        self.encode.restype = ctypes.c_size_t
        self.encode.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]

    def write(self, asked, ours, theirs, _name):
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
        run(*self.command(asked, theirs, name))


def our_command(asked, ours, name):
    flags = ["--imatrix", asked.imatrix] if asked.imatrix else []
    return [asked.assay, "quantize", asked.model, ours, name, "-t", "2"] + flags


def rmse(assay, original, file):
    rows = json.loads(run(assay, "diff", original, file, "--json"))["tensors"]
    errors = [row["rmse"] for row in rows if row.get("rmse")]
    return sum(errors) / len(errors)


def divergence(asked, file):
    if asked.chunks == 0:
        return None
    told = run(asked.assay, "perplexity", file, "-f", asked.text, "-c", str(CONTEXT), "--chunks", str(asked.chunks), "-t", "2", "--against", asked.model, "--json")
    return json.loads(told)["kl_divergence"]["mean"]


def timed(command):
    begin = time.monotonic()
    run(*command)
    return time.monotonic() - begin


def row_of(asked, peer, name, folder):
    ours, theirs = os.path.join(folder, "ours.gguf"), os.path.join(folder, "theirs.gguf")
    run(*our_command(asked, ours, name))
    peer.write(asked, ours, theirs, name)
    row = {"type": name, "bytes": [os.path.getsize(ours), os.path.getsize(theirs)],
           "rmse": [rmse(asked.assay, asked.model, file) for file in (ours, theirs)],
           "kld": [divergence(asked, file) for file in (ours, theirs)]}
    if asked.seconds:
        both = [(timed(our_command(asked, ours, name)), timed(peer.command(asked, theirs, name))) for _ in range(asked.seconds)]
        row["seconds"] = [statistics.median(side) for side in zip(*both)]
    runner = os.path.join(asked.peer, "llama-perplexity")
    if os.path.exists(runner):
        row["runs"] = subprocess.run([runner, "-m", ours, "-f", asked.text, "-c", "64", "--chunks", "2"], capture_output=True).returncode == 0
    return row


def table(rows):
    print("| type | bytes | RMSE to theirs | KLD ours | KLD theirs | to theirs | s ours | s theirs |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [row["type"], f"{row['bytes'][0]:,}", f"{row['rmse'][0] / row['rmse'][1]:.3f}"]
        has_kld = row["kld"][0] is not None
        cells += [f"{row['kld'][0]:.4g}", f"{row['kld'][1]:.4g}", f"{row['kld'][0] / row['kld'][1]:.3f}"] if has_kld else [""] * 3
        cells += [f"{seconds:.2f}" for seconds in row.get("seconds", [])] or [""] * 2
        print("| " + " | ".join(cells) + " |")
    nine = [row["kld"][0] / row["kld"][1] for row in rows if row["type"] in NINE and row["kld"][0] is not None]
    if len(nine) == len(NINE):
        print(f"\nThe nine: geometric mean of the divergences' quotients {math.exp(sum(map(math.log, nine)) / len(nine)):.3f}, "
              f"largest {max(nine):.3f}; largest of the errors' {max(r['rmse'][0] / r['rmse'][1] for r in rows if r['type'] in NINE):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("assay", "peer", "model", "text"):
        parser.add_argument(name)
    parser.add_argument("--state", required=True)
    parser.add_argument("--imatrix")
    parser.add_argument("--chunks", type=int, default=8, help=f"of {CONTEXT} tokens, whose second halves are scored; 0 leaves the divergence out")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--seconds", type=int, default=0)
    asked = parser.parse_args()
    peer = Programs(asked.peer) if os.path.isdir(asked.peer) else Library(asked.peer)
    if asked.seconds and isinstance(peer, Library):
        sys.exit("--seconds needs llama-quantize: PEER is a library")
    key = {"assay": run(asked.assay, "--version").splitlines()[0], "model": os.path.basename(asked.model), "matrix": bool(asked.imatrix),
           "text": os.path.basename(asked.text), "chunks": asked.chunks}
    rows = []
    if os.path.exists(asked.state):
        with open(asked.state) as lines:
            rows = [row for row in map(json.loads, lines) if all(row[k] == v for k, v in key.items())]
    wanted = [name for name in asked.types.split(",") if asked.imatrix or name not in NEED_MATRIX]
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            if any(row["type"] == name for row in rows):
                continue
            rows.append({**key, **row_of(asked, peer, name, folder)})
            with open(asked.state, "a") as out:
                out.write(json.dumps(rows[-1]) + "\n")
    table(sorted(rows, key=lambda row: TYPES.index(row["type"])))
    fails = [row["type"] for row in rows if row.get("runs") is False]
    if fails:
        sys.exit("llama.cpp does not run: " + " ".join(fails))


if __name__ == "__main__":
    main()
