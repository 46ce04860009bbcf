"""Writes the first inputs of fuzz_dump into corpus/dump: small dumps, right ones and broken ones, after docs/dump-format.md. Needs xxhash."""
import json
import struct
from pathlib import Path

import xxhash

OUT = Path(__file__).parent / "corpus/dump"
HEADER = {"engine": "e 1", "model": "m", "architecture": "llama", "text": "Hi \u00e9", "n_layers": 1, "d_model": 2, "vocab_size": 8,
          "declared": {"unit_roundoff_log2": -24, "activation_bits": 0, "activation_block": 0, "activations_f16": False,
                       "cache_k": "f32", "cache_v": "f16", "gelu_table_f16": False}}


def sealed(content):
    return content + struct.pack("<Q", xxhash.xxh3_64_intdigest(content))


def header(fields=HEADER, version=1):
    text = json.dumps(fields).encode()
    return sealed(b"ASSAYDMP" + struct.pack("<II", version, len(text)) + text)


def record(kind, payload):
    return sealed(struct.pack("<IQ", kind, len(payload)) + payload)


def batch(tokens, positions, sequences, outputs):
    n = len(tokens)
    return record(1, struct.pack(f"<I{n}i{n}i{n}i{n}B", n, *tokens, *positions, *sequences, *outputs))


def tensor(name, n_rows, width, values, f64=False):
    name = name.encode()
    return record(2, struct.pack("<IIQQ", int(f64), len(name), n_rows, width) + name + struct.pack(f"<{len(values)}{'d' if f64 else 'f'}", *values))


def write(name, *records, fields=HEADER, version=1, count=None):
    content = header(fields, version) + b"".join(records) + struct.pack("<IQ", 0, len(records) if count is None else count)
    whole = content + xxhash.xxh3_128_intdigest(content).to_bytes(16, "little")
    (OUT / name).write_bytes(whole)
    return whole


OUT.mkdir(parents=True, exist_ok=True)
one = batch([1, 2], [0, 1], [0, 0], [0, 1])
write("empty")
write("batch", one)
good = write("two_batches", one, tensor("token_embd", 2, 2, [1, 2, 3, 4]), tensor("output", 1, 8, range(8), True), batch([3], [2], [0], [0]),
             tensor("token_embd", 1, 2, [5, float("nan")]), tensor("output", 0, 8, []))
write("two_sequences", batch([1, 2, 3], [0, 0, 1], [0, 5, 5], [1, 1, 1]), tensor("blk.0.attn_q", 3, 4, [0.5] * 12))
(OUT / "cut").write_bytes(good[:-40])
(OUT / "magic").write_bytes(b"ASSAYDMP")
write("version2", version=2)
write("count", one, count=2)
write("no_declared", fields={k: v for k, v in HEADER.items() if k != "declared"})
write("no_object", fields=[1])
write("tensor_first", tensor("token_embd", 1, 2, [1, 2]))
write("rows", one, tensor("token_embd", 3, 1, [1, 2, 3]))
write("kind", one, record(9, b""))
write("wide", one, record(2, struct.pack("<IIQQ", 0, 1, 2, 2**63) + b"a"))
