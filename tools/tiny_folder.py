#!/usr/bin/env python3
"""A tiny folder of Hugging Face, with random weights, as the tests of `assay convert` have it: config.json, safetensors, tokenizer, under 300 kB.

usage: tools/tiny_folder.py FAMILY FOLDER     (llama, gemma3, qwen2, ... : the names in tests/data/convert/families.json)"""
import base64
import json
import pathlib
import struct
import sys

FACTS = pathlib.Path(__file__).resolve().parent.parent / "tests/data/convert/families.json"


def fnv(text):
    data = text.encode()
    data += b"\0" * (-len(data) % 8)
    h = 0xCBF29CE484222325
    for (word,) in struct.iter_unpack("<Q", data):
        h = ((h ^ word) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def values(name, n):
    """By a hash of name and place, from -0.5 to 0.5: goldens/convert.py has the same."""
    mask, seed = 0xFFFFFFFFFFFFFFFF, fnv(name)
    for i in range(1, n + 1):
        z = (seed + i * 0x9E3779B97F4A7C15) & mask
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        yield (((z ^ (z >> 31)) >> 44) - (1 << 19)) * 2.0 ** -20


def stored(name, dtype, shape):
    n = 1
    for dim in shape:
        n *= dim
    if dtype == "F16":
        return struct.pack(f"<{n}e", *values(name, n))
    whole = struct.pack(f"<{n}f", *values(name, n))
    if dtype == "F32":
        return whole
    if dtype == "BF16":  # the upper halves
        return b"".join(whole[at + 2:at + 4] for at in range(0, len(whole), 4))
    sys.exit(f"{name}: weights of {dtype} are for the tests alone; another family is needed")


def main():
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    if len(sys.argv) != 3 or sys.argv[1] not in facts["families"]:
        sys.exit(f"{__doc__}\n\nfamilies: {' '.join(facts['families'])}")
    family, folder = facts["families"][sys.argv[1]], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    header, data = {}, b""
    for name, dtype, shape in family["tensors"]:
        part = stored(name, dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(family["config"], encoding="utf-8")
    for name, (kind, content) in facts["files"][family["tokenizer"]].items():
        if kind == "patch":  # the tokenizer that byte-level families share, less the members that this one has otherwise
            whole = json.loads(json.dumps(facts["tokenizer.json"]))
            for key, value in content.items():
                (whole["model"] if key == "ignore_merges" else whole)[key] = value
            content = json.dumps(whole, ensure_ascii=False)
        (folder / name).write_bytes(base64.b64decode(content) if kind == "base64" else content.encode())
    for name, content in family.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


main()
