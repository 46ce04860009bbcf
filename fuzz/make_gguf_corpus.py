"""Writes the first inputs of fuzz_gguf into corpus/gguf: one small file for each feature of the format."""
import struct
from pathlib import Path

OUT = Path(__file__).parent / "corpus/gguf"
SCALARS = "<B <b <H <h <I <i <f <B s a <Q <q <d".split()


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def entry(key, kind, payload):
    return string(key) + struct.pack("<I", kind) + payload


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def tensor(name, dims, kind, offset):
    return string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)


def write(name, entries=(), tensors=(), data=b"", version=3, align=32):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    out += b"\0" * (-len(out) % align)
    (OUT / name).write_bytes(out + data)


OUT.mkdir(parents=True, exist_ok=True)
write("empty")
write("version2", version=2)
write("scalars", [entry(f"k{i}", i, struct.pack(f, 1)) for i, f in enumerate(SCALARS) if f[0] == "<"] + [entry("s", 8, string("text"))])
write("arrays", [entry(f"a{i}", 9, array(i, [struct.pack(f, 1)] * 3)) for i, f in enumerate(SCALARS) if f[0] == "<"]
      + [entry("s", 9, array(8, [string("a"), string(""), string("bc")])), entry("none", 9, array(8, []))])
inner = array(4, [struct.pack("<I", 7)])
write("nested", [entry("n", 9, array(9, [inner, array(8, [string("x")]), array(9, [inner])]))])
write("tensors", [entry("general.architecture", 8, string("llama"))],
      [tensor("a", [4], 0, 0), tensor("b.weight", [32, 2], 8, 32), tensor("c", [3, 2, 1, 2], 24, 128)], bytes(160))
write("alignment", [entry("general.alignment", 4, struct.pack("<I", 8))], [tensor("a", [1], 0, 0), tensor("b", [1], 1, 8)], bytes(16), align=8)
write("split", [entry("split.no", 2, b"\0\0"), entry("split.count", 2, b"\1\0"), entry("split.tensors.count", 5, bytes(4))])
(OUT / "magic").write_bytes(b"GGUF")
(OUT / "big_endian").write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
write("huge_string", [entry("s", 8, struct.pack("<Q", 2**64 - 1))])
write("huge_array", [entry("s", 9, struct.pack("<IQ", 10, 2**61))])
write("huge_tensor", [], [tensor("t", [2**32, 2**32], 24, 0)])
write("five_dimensions", [], [tensor("t", [1] * 5, 0, 0)])
