#!/usr/bin/env python3
"""The table of docs/quantize.md: assay quantize beside llama-quantize, type by type.

usage: tools/compare_quantize.py ASSAY PEER_BIN MODEL-BF16.gguf TEXT [--imatrix FILE] [--chunks N] [--types A,B...] [--rounds N]

For each type both programs write the file, in turn, --rounds times (default 3). Of each type: the mean over the tensors of
the root mean square error, the KL divergence to MODEL over TEXT, the bytes, and the median seconds of the whole program on
2 threads. Every file of assay's is also loaded and run by llama-perplexity. Exit 1 where one does not run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

TYPES = ("Q4_0 Q5_0 Q8_0 Q4_K_M Q5_K_M Q6_K Q3_K_M IQ4_NL IQ4_XS Q4_1 Q5_1 Q2_K Q2_K_S Q3_K_S Q3_K_L Q4_K_S Q5_K_S IQ3_XXS IQ3_XS IQ3_S IQ3_M "
         "IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ1_S TQ1_0 TQ2_0 MXFP4_MOE").split()
NEED_MATRIX = {"Q2_K_S", "IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS"}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def rmse(assay, original, file):
    rows = json.loads(run(assay, "diff", original, file, "--json"))["tensors"]
    errors = [row["rmse"] for row in rows if row.get("rmse")]
    return sum(errors) / len(errors)


def divergence(assay, original, file, text, chunks):
    told = run(assay, "perplexity", file, "-f", text, "-c", "256", "--chunks", str(chunks), "--against", original, "--json")
    return json.loads(told)["kl_divergence"]["mean"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("assay", "peer_bin", "model", "text"):
        parser.add_argument(name)
    parser.add_argument("--imatrix")
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    flags = ["--imatrix", asked.imatrix] if asked.imatrix else []
    fails = []
    print("| type | RMSE to theirs | KLD ours | KLD theirs | to theirs | s ours | s theirs | bytes |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = os.path.join(folder, "ours.gguf"), os.path.join(folder, "theirs.gguf")
        for name in asked.types.split(","):
            if name in NEED_MATRIX and not flags:
                continue
            seconds = {ours: [], theirs: []}
            for _ in range(asked.rounds):
                for out, command in ((ours, [asked.assay, "quantize", asked.model, ours, name, "-t", "2"] + flags),
                                     (theirs, [os.path.join(asked.peer_bin, "llama-quantize")] + flags + [asked.model, theirs, name, "2"])):
                    begin = time.monotonic()
                    run(*command)
                    seconds[out].append(time.monotonic() - begin)
            errors = [rmse(asked.assay, asked.model, file) for file in (ours, theirs)]
            costs = [divergence(asked.assay, asked.model, file, asked.text, asked.chunks) for file in (ours, theirs)]
            loaded = subprocess.run([os.path.join(asked.peer_bin, "llama-perplexity"), "-m", ours, "-f", asked.text, "-c", "64", "--chunks", "2"],
                                    capture_output=True, text=True)
            if loaded.returncode != 0:
                fails.append(name)
            print(f"| {name} | {errors[0] / errors[1]:.3f} | {costs[0]:.4g} | {costs[1]:.4g} | {costs[0] / costs[1]:.3f} | "
                  f"{statistics.median(seconds[ours]):.2f} | {statistics.median(seconds[theirs]):.2f} | {os.path.getsize(ours)} |", flush=True)
    if fails:
        sys.exit("llama.cpp does not run: " + " ".join(fails))


if __name__ == "__main__":
    main()
