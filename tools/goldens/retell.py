"""A GGUF file told in other ways that mean the same: what older converters wrote and what their options write.

retellings(path, folder) yields (name, path) of files beside `path`; random_settings.py demands the bits of the file itself of each. A way that a file has no
use for (nothing to fuse, no key at its default) is left out.
"""
import numpy as np

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter


class Told:
    """What a file holds: keys (value, type, type of elements) and tensors (shape as numpy has it, contents) by name."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.keys, self.tensors = {}, {}
        for name, field in reader.fields.items():
            if not name.startswith("GGUF."):
                self.keys[name] = (field.contents(), field.types[0], field.types[-1])
        for t in reader.tensors:
            assert t.tensor_type in (GGMLQuantizationType.F32, GGMLQuantizationType.F16), t.tensor_type
            self.tensors[t.name] = np.array(t.data).reshape([int(n) for n in reversed(t.shape)])
        self.architecture = self.keys["general.architecture"][0]

    def value(self, key):
        found = self.keys.get(f"{self.architecture}.{key}")
        return None if found is None else found[0]

    def put(self, key, value, kind):
        self.keys[f"{self.architecture}.{key}"] = (value, kind, kind)

    def write(self, path):
        writer = GGUFWriter(path, self.architecture)
        for name, (value, kind, of) in self.keys.items():
            if name != "general.architecture":
                writer.add_key_value(name, value, kind, of if kind == GGUFValueType.ARRAY else None)
        for name, data in self.tensors.items():
            writer.add_tensor(name, data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def layers(told):
    return sorted({int(name.split(".")[1]) for name in told.tensors if name.startswith("blk.")})


# Families whose readers take queries, keys and values in one matrix (llama.cpp's create_tensor_qkv), where no layer says otherwise.
NOT_FUSED = ("falcon", "gpt2", "gptneox", "bert", "nomic-bert", "modern-bert", "phi3", "gemma4", "gemma3n", "mamba", "mamba2", "qwen3next", "qwen35", "qwen35moe", "qwen4exp",
             "kimi-linear", "bailingmoe3", "deepseek2", "deepseek32", "glm-dsa", "mistral4", "minicpm3", "stablelm", "nemotron_h", "nemotron_h_moe", "falcon-h1", "jamba", "granitehybrid",
             "lfm2", "lfm2moe")


def fused_heads(told):
    if told.architecture in NOT_FUSED:
        return False
    for layer in layers(told):
        names = [f"blk.{layer}.attn_{part}" for part in "qkv"]
        for ending in ("weight", "bias"):
            parts = [f"{name}.{ending}" for name in names]
            if all(part in told.tensors for part in parts):
                told.tensors[f"blk.{layer}.attn_qkv.{ending}"] = np.concatenate([told.tensors.pop(part) for part in parts])
    return any(".attn_qkv.weight" in name for name in told.tensors)


def fused_experts(told):
    if told.architecture in ("gpt-oss", "llama4"):
        return False
    for layer in layers(told):
        gate, up = (f"blk.{layer}.ffn_{part}_exps.weight" for part in ("gate", "up"))
        if gate in told.tensors and up in told.tensors:
            told.tensors[f"blk.{layer}.ffn_gate_up_exps.weight"] = np.concatenate([told.tensors.pop(gate), told.tensors.pop(up)], axis=1)
    return any(name.endswith("ffn_gate_up_exps.weight") for name in told.tensors)


def tied_head_spelled_out(told):
    if "output.weight" in told.tensors or "token_embd.weight" not in told.tensors or told.value("pooling_type") is not None:
        return False
    told.tensors["output.weight"] = told.tensors["token_embd.weight"].copy()
    return told.architecture not in ("lfm2", "lfm2moe")


def without_defaults(told):
    """Keys whose value a missing key means."""
    def is_one(key, value):
        found = told.value(key)
        return found is not None and not isinstance(found, list) and found == value
    heads, width = told.value("attention.head_count"), told.value("embedding_length")
    before = len(told.keys)
    gone = []
    if isinstance(heads, int) and heads > 0:
        for key in ("attention.key_length", "attention.value_length"):
            if is_one(key, width // heads) and width % heads == 0 and told.value(key + "_mla") is None and told.value(key + "_swa") is None:
                gone.append(key)
        if is_one("attention.head_count_kv", heads):
            gone.append("attention.head_count_kv")
        length = told.value("attention.key_length") or width // heads
        if is_one("rope.dimension_count", length) and told.value("attention.key_length_mla") is None and told.value("rope.dimension_count_swa") is None:
            gone.append("rope.dimension_count")
    for key, value in (("rope.freq_base", 10000.0), ("vocab_size", told.tensors["token_embd.weight"].shape[0]), ("expert_weights_scale", 1.0), ("expert_feed_forward_length", told.value("feed_forward_length"))):
        if is_one(key, value):
            gone.append(key)
    for key in gone:
        told.keys.pop(f"{told.architecture}.{key}", None)
    return len(told.keys) < before


def counts_of_each_layer(told):
    """Counts that a file may give once, or once a layer."""
    n = told.value("block_count")
    changed = False
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        found = told.value(key)
        if isinstance(found, int):
            told.keys[f"{told.architecture}.{key}"] = ([found] * n, GGUFValueType.ARRAY, GGUFValueType.INT32)
            changed = True
    return changed


def f16_matrices(told):
    """Not the same numbers: the same as the file's, since weights are rounded to half precision."""
    changed = False
    for name, data in told.tensors.items():
        if data.ndim == 2 and data.dtype == np.float32 and name.endswith(("attn_q.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight", "output.weight", "token_embd.weight")):
            if np.array_equal(data.astype(np.float16).astype(np.float32), data):
                told.tensors[name] = data.astype(np.float16)
                changed = True
    return changed


WAYS = (fused_heads, fused_experts, tied_head_spelled_out, without_defaults, counts_of_each_layer, f16_matrices)


def retellings(path, folder):
    for way in WAYS:
        told = Told(path)
        if way(told):
            target = folder / f"{way.__name__}.gguf"
            told.write(target)
            yield way.__name__, target
