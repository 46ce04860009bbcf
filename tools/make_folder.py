"""A folder of Hugging Face made of a llama GGUF file with a byte-level vocabulary: what `assay convert` reads, where no folder can be had.

usage: make_folder.py MODEL.gguf FOLDER     (pip install gguf numpy)

Weights become BF16, query and key rows get the order that the folder's own code has. Tried with SmolLM2-135M-Instruct.
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def folder_name(name):
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{NAMES[parts[2]]}.{parts[3]}"
    return f"{NAMES[parts[0]]}.{parts[1]}"


def bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def main(source, folder):
    file = GGUFReader(source)
    value = lambda key: file.fields[key].contents()
    llama = lambda key: value(f"llama.{key}")
    heads, kv_heads = llama("attention.head_count"), llama("attention.head_count_kv")
    folder.mkdir(parents=True, exist_ok=True)

    header, data = {}, []
    at = 0
    for tensor in file.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        for kind, n in (("attn_q.", heads), ("attn_k.", kv_heads)):
            if kind in tensor.name:  # of each head: pair, half -> half, pair
                values = values.reshape(n, -1, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)
        data.append(bf16(values).tobytes())
        header[folder_name(tensor.name)] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for part in data:
            out.write(part)

    tokens, kinds = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    bos, eos = int(value("tokenizer.ggml.bos_token_id")), int(value("tokenizer.ggml.eos_token_id"))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": "lm_head.weight" not in header, "rope_scaling": None,
        "vocab_size": len(tokens), "hidden_size": llama("embedding_length"), "intermediate_size": llama("feed_forward_length"),
        "num_hidden_layers": llama("block_count"), "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "max_position_embeddings": llama("context_length"), "rope_theta": float(llama("rope.freq_base")),
        "rms_norm_eps": round(float(llama("attention.layer_norm_rms_epsilon")), 9), "bos_token_id": bos, "eos_token_id": eos,
    }
    config = {key: int(x) if isinstance(x, np.integer) else x for key, x in config.items()}
    special = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, kind in enumerate(kinds) if kind == 3]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level | {"add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in value("tokenizer.ggml.merges")]},
    }
    tokenizer_config = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "bos_token": tokens[bos], "eos_token": tokens[eos],
                        "chat_template": value("tokenizer.chat_template")}
    for name, content in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", tokenizer_config)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False))


main(sys.argv[1], Path(sys.argv[2]))
