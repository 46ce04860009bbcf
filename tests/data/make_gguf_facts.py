"""Writes what Python's `gguf` package (pip install gguf) reads in some files: one line an entry or tensor, for gguf/facts_test.cpp.
Usage: make_gguf_facts.py OUT_FOLDER FILE.gguf..."""
import struct, sys
from pathlib import Path
from gguf import GGUFReader, GGUFValueType


def digest(items):
    h = 0xcbf29ce484222325  # FNV-1a, 64 bits
    for item in items:
        for byte in item + b"\0":
            h = (h ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{h:016x}"


def encode(value, kind):
    if kind == GGUFValueType.STRING:
        return value if isinstance(value, bytes) else value.encode()
    if kind == GGUFValueType.FLOAT32:
        return struct.pack("<f", value).hex().encode()
    if kind == GGUFValueType.FLOAT64:
        return struct.pack("<d", value).hex().encode()
    return str(int(value)).encode()


def items(field, kind):
    for i in field.data:
        part = field.parts[i]
        yield encode(bytes(part) if kind == GGUFValueType.STRING else part[0], kind)


def lines(path):
    reader = GGUFReader(path)
    yield f"alignment {reader.alignment}"
    for field in reader.fields.values():
        if field.name.startswith("GGUF."):
            continue
        types = " ".join(t.name for t in field.types)
        kind = field.types[-1]
        yield f"entry {field.name} {types} {len(field.data)} {digest(items(field, kind))}"
    for tensor in reader.tensors:
        shape = "x".join(str(d) for d in reversed(tensor.shape.tolist()))
        yield f"tensor {tensor.name} {tensor.tensor_type.name} {shape} {tensor.data_offset} {tensor.n_bytes}"


for name in sys.argv[2:]:
    (Path(sys.argv[1]) / (Path(name).stem + ".txt")).write_text("\n".join(lines(name)) + "\n")
