#!/usr/bin/env python3
"""Counts vector registers that the hot loops of the CPU kernels move to and from the stack, in the disassembly of their object files, and fails
above the bound of the kernel. A loop is hot when it is innermost and multiplies integers (dot instructions) at least MIN_DOTS times.
usage: stack_moves.py OBJDUMP OBJECT_FOLDER"""
import pathlib
import re
import subprocess
import sys

MIN_DOTS = 16  # fewer: the unpacking of weights and the sums of minima, which run once for many products

# Stem of the source file -> bounds for the functions that a pattern names; the first that fits counts. The rest is BOUND.
BOUND = 0
BOUNDS = {
    # Float chains, sums of words and a constant are one register too many: once in a block of 32, beside 48 products. With signed weights the float
    # chains are in memory, read once beside 128 products.
    "gemm_a32_bytes_avx2": [(r"RowsQ5_1|SignedBytes", 16), (r"", 4)],
    # The sums of minima of both planes, unrolled for all tokens, once in a superblock; weights of 2 bits, not tuned.
    "gemm_a256_bytes_avx2": [(r"UnpackQ2_K, 2", 24)],
    # Unpacking, whose tables of scales are on the stack, and the sums of minima, once beside a superblock's 256 products a token.
    "gemm_a256_words_avx2": [(r"UnpackQ2_K|SkinnyLoops|::build\(|run_skinny<", 68), (r"", 24)],
    # Their inner loops are unrolled, so the loop looked at is a superblock: float chains and minima, once beside 384 products and more.
    "gemm_a32_avx512": [(r"", 4)],
    "gemm_a256_avx512": [(r"", 84)],
    "gemm_a256_words_avx512": [(r"UnpackQ2_K", 72), (r"", 52)],
}
DOT = re.compile(r"(vpmaddubsw|vpmaddwd|vpdpbusd|vpdpwssd|[su]dot|[su]mmla|usdot|usmmla)\b")
STACK = re.compile(r"^v\S*\s.*\(%r[sb]p|^(ldr|str|ldp|stp)\s+[qvd]\d.*\[(sp|x29)")
JUMP = re.compile(r"^(?:j\w+|b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#\d+,|b)\s+(?:0x)?([0-9a-f]+)\b")


def functions(objdump, path):
    """Yields the name and the list of (address, instruction) of every function."""
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    name, body = "", []
    for line in text.splitlines():
        if start := re.match(r"^[0-9a-f]+ <(.*)>:$", line):
            yield name, body
            name, body = start.group(1), []
        elif instruction := re.match(r"^\s*([0-9a-f]+):\s+(.*?)\s*$", line):
            body.append((int(instruction.group(1), 16), instruction.group(2)))
    yield name, body


def innermost_loops(body):
    """Jumps backwards whose range holds no other."""
    place = {address: i for i, (address, _) in enumerate(body)}
    loops = []
    for i, (_, instruction) in enumerate(body):
        jump = JUMP.match(instruction)
        first = place.get(int(jump.group(1), 16)) if jump else None
        if first is not None and first <= i:
            loops.append((first, i))
    return [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]


def bound_of(stem, function):
    return next((bound for pattern, bound in BOUNDS.get(stem, []) if re.search(pattern, function)), BOUND)


def main(objdump, folder):
    objects = sorted(p for p in pathlib.Path(folder).rglob("*.o") if re.match(r"(skinny|gemm)_\w*(avx2|avx512|neon)\w*\.cpp", p.name))
    failures = loops = 0
    for path in objects:
        stem = path.name.split(".")[0]
        hot = 0
        for function, body in functions(objdump, path):
            for first, last in innermost_loops(body):
                instructions = [instruction for _, instruction in body[first:last + 1]]
                if sum(bool(DOT.match(i)) for i in instructions) < MIN_DOTS:
                    continue
                hot += 1
                moves = [i for i in instructions if STACK.match(i)]
                if len(moves) > (bound := bound_of(stem, function)):
                    failures += 1
                    print(f"{stem}: {len(moves)} stack moves, at most {bound}, in a loop of {len(instructions)} instructions of\n  {function}")
                    print("".join(f"    {move}\n" for move in moves[:4]), end="")
        loops += hot
        if hot == 0:
            failures += 1
            print(f"{stem}: no hot loop found; the test looks for another shape of code than the compiler makes")
    print(f"{loops} hot loops in {len(objects)} object files looked at")
    return 1 if failures or not objects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
