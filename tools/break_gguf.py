#!/usr/bin/env python3
"""Breaks a GGUF file in one of the ways that converters have broken them, to see what `assay verify` says of it (docs/verify.md).

usage: break_gguf.py IN.gguf OUT.gguf KIND
  k-rows    the rows of every K projection in the order of the training framework: their permutation forgotten
  eps       attention.layer_norm_rms_epsilon a thousand times too large
  nibbles   the nibbles of every Q4_1 block as neighbours, low, high, low, high
  theta     rope.freq_base 1e4
  q-rows    as k-rows, for the Q projection of block 1 alone
  norm-one  1 less in every value of block 1's attention norm (F32): Gemma's 1, forgotten

The file stays a valid GGUF file of the same size: only bytes of values change. Needs Python 3.8; `nibbles` needs numpy."""

import mmap
import shutil
import struct
import sys

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
          12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2)}  # type: elements, bytes
Q4_1 = 3


class Gguf:
    """The keys (value and where it stands) and tensors (type, dimensions, where they stand) of a file."""

    def __init__(self, data):
        self.data, self.at = data, 4
        if data[:4] != b"GGUF":
            sys.exit("not a GGUF file")
        self.number("<I")
        n_tensors, n_keys = self.number("<Q"), self.number("<Q")
        self.keys, self.tensors = {}, {}
        for _ in range(n_keys):
            name, kind = self.string(), self.number("<I")
            self.keys[name] = (self.at, self.value(kind))
        for _ in range(n_tensors):
            name = self.string()
            dims = [self.number("<Q") for _ in range(self.number("<I"))]
            self.tensors[name] = (self.number("<I"), dims, self.number("<Q"))
        alignment = self.keys.get("general.alignment", (0, 32))[1]
        self.begin = (self.at + alignment - 1) // alignment * alignment

    def number(self, layout):
        value = struct.unpack_from(layout, self.data, self.at)[0]
        self.at += struct.calcsize(layout)
        return value

    def string(self):
        n = self.number("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(SCALARS[kind])
        element, n = self.number("<I"), self.number("<Q")
        return [self.value(element) for _ in range(n)]

    def place(self, name):
        """Where the tensor begins, its number of rows and the bytes of a row."""
        kind, dims, offset = self.tensors[name]
        elements, size = BLOCKS[kind]
        n_rows = 1
        for dim in dims[1:]:
            n_rows *= dim
        return self.begin + offset, n_rows, dims[0] // elements * size


def unpermute(file, names, heads_key):
    """A converter orders the rows of every head of Q and K for RoPE on neighbours: row 2 i + s of a head is row s * (head_dim / 2) + i of the
    training framework. Undone, as by a converter that forgot it."""
    arch = file.keys["general.architecture"][1]
    n_heads = file.keys[f"{arch}.attention.{heads_key}"][1]
    for name in names:
        begin, n_rows, row_bytes = file.place(name)
        rows = [file.data[begin + i * row_bytes:begin + (i + 1) * row_bytes] for i in range(n_rows)]
        head_dim = n_rows // n_heads
        original = [rows[i // head_dim * head_dim + i % head_dim % (head_dim // 2) * 2 + i % head_dim // (head_dim // 2)] for i in range(n_rows)]
        file.data[begin:begin + n_rows * row_bytes] = b"".join(original)


def take_one_away(file, name):
    begin, n_rows, row_bytes = file.place(name)
    layout = f"<{n_rows * row_bytes // 4}f"
    struct.pack_into(layout, file.data, begin, *[x - 1 for x in struct.unpack_from(layout, file.data, begin)])


def set_key(file, name, change):
    arch = file.keys["general.architecture"][1]
    at, value = file.keys[f"{arch}.{name}"]
    struct.pack_into("<f", file.data, at, change(value))


def interleave_nibbles(file):
    import numpy as np
    for name, (kind, _, _) in file.tensors.items():
        if kind != Q4_1:
            continue
        begin, n_rows, row_bytes = file.place(name)
        blocks = np.frombuffer(file.data[begin:begin + n_rows * row_bytes], np.uint8).reshape(-1, 20).copy()
        quants = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)  # element 0 .. 31
        blocks[:, 4:] = quants[:, 0::2] | quants[:, 1::2] << 4
        file.data[begin:begin + n_rows * row_bytes] = blocks.tobytes()


KINDS = {"k-rows": lambda file: unpermute(file, [name for name in file.tensors if name.endswith("attn_k.weight")], "head_count_kv"),
         "q-rows": lambda file: unpermute(file, ["blk.1.attn_q.weight"], "head_count"),
         "norm-one": lambda file: take_one_away(file, "blk.1.attn_norm.weight"), "nibbles": interleave_nibbles,
         "eps": lambda file: set_key(file, "attention.layer_norm_rms_epsilon", lambda eps: eps * 1000),
         "theta": lambda file: set_key(file, "rope.freq_base", lambda _: 1e4)}


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in KINDS:
        sys.exit(__doc__)
    shutil.copyfile(sys.argv[1], sys.argv[2])
    with open(sys.argv[2], "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        KINDS[sys.argv[3]](Gguf(data))


if __name__ == "__main__":
    main()
