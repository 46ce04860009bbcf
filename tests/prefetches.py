#!/usr/bin/env python3
"""Looks into the object files of the matrix-vector kernels: every function that walks rows must fetch ahead. A compiler once dropped all of
these instructions after a small edit, and decoding was as slow as without them.
usage: prefetches.py OBJDUMP OBJECT_FOLDER"""
import pathlib
import re
import subprocess
import sys


def main(objdump, folder):
    objects = sorted(p for p in pathlib.Path(folder).rglob("*.o") if re.match(r"(gemv_(a32|a256|short|long)|float)_(avx2|avx512)\.cpp", p.name))
    walks = failures = 0
    for path in objects:
        text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
        for function in re.split(r"\n(?=[0-9a-f]+ <)", text):
            name = re.match(r"[0-9a-f]+ <(.*)>:", function)
            if not name or not re.search(r"(gemv|float_vector|short|long)_rows<", name.group(1)):
                continue
            walks += 1
            if "prefetcht0" not in function:
                failures += 1
                print(f"{path.name}: nothing is fetched ahead in\n  {name.group(1)}")
    print(f"{walks} walks over rows in {len(objects)} object files looked at")
    return 1 if failures or walks < 8 * len(objects) or not objects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
