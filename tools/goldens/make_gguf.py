#!/usr/bin/env python3
"""Files by Python's gguf package, which tests hold ours against.

usage: make_gguf.py OUT_FOLDER      (needs: gguf 0.17 or newer, numpy)
Writes OUT_FOLDER/gguf/python.gguf and OUT_FOLDER/imatrix/python.{gguf,dat}; OUT_FOLDER is tests/data.
"""
import struct
import sys
from pathlib import Path

import gguf
import numpy as np


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def model(path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_uint8("u8", 200)
    w.add_int8("i8", -100)
    w.add_uint16("u16", 60000)
    w.add_int16("i16", -30000)
    w.add_uint32("u32", 4000000000)
    w.add_int32("i32", -2000000000)
    w.add_uint64("u64", 2**64 - 1)
    w.add_int64("i64", -(2**63))
    w.add_float32("f32", 1.5)
    w.add_float64("f64", 0.1)
    w.add_bool("yes", True)
    w.add_string("text", "caf\u00e9")
    w.add_array("texts", ["a", "", "bc"])
    w.add_array("integers", [-1, 2])
    w.add_array("floats", [0.5, -2.0])
    w.add_array("flags", [True, False])
    w.add_tensor("a", np.arange(3, dtype=np.float32))
    w.add_tensor("b", np.arange(10, dtype=np.float32).reshape(2, 5))
    w.add_tensor("c", np.arange(24, dtype=np.float16).reshape(2, 3, 4))
    w.add_tensor("d", np.arange(2 * 34, dtype=np.uint8).reshape(2, 34), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    write(w)


def matrix():
    """Sums and counts of three weights; one of them has three experts, of which one was never used."""
    q = (np.arange(8, dtype=np.float32) + 1) * 10
    return [
        ("blk.0.attn_q.weight", q.reshape(1, 8), np.array([[1024.0]], dtype=np.float32)),
        ("blk.0.ffn_down_exps.weight", np.array([[1, 2], [0, 0], [5, 6]], dtype=np.float32), np.array([[4], [0], [2]], dtype=np.float32)),
        ("blk.1.attn_q.weight", (q / 3).reshape(1, 8), np.array([[1024.0]], dtype=np.float32)),
    ]


def imatrix_gguf(path):
    w = gguf.GGUFWriter(path, "")
    w.kv_data = [{}]  # without the architecture that the package adds
    w.add_string("general.type", "imatrix")
    w.add_array("imatrix.datasets", ["calibration.txt"])
    w.add_uint32("imatrix.chunk_count", 2)
    w.add_uint32("imatrix.chunk_size", 512)
    for name, sums, counts in matrix():
        w.add_tensor(name + ".in_sum2", sums)
        w.add_tensor(name + ".counts", counts)
    write(w)


def imatrix_dat(path):
    out = b""
    entries = matrix()
    out += struct.pack("<i", len(entries))
    for name, sums, counts in entries:
        calls = int(np.ceil(counts.max() / 512))
        mean = np.where(counts == 0, np.float32(1), sums / np.where(counts == 0, np.float32(1), counts)).astype(np.float32)
        out += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", calls, mean.size) + (mean * np.float32(calls)).astype("<f4").tobytes()
    dataset = b"calibration.txt"
    out += struct.pack("<ii", 2, len(dataset)) + dataset
    Path(path).write_bytes(out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    model(folder / "gguf" / "python.gguf")
    imatrix_gguf(folder / "imatrix" / "python.gguf")
    imatrix_dat(folder / "imatrix" / "python.dat")
