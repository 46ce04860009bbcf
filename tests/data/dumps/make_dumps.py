"""Writes two small random models and what Hugging Face transformers computes with them, op by op: llama.gguf, llama.dump, gemma3.gguf and
gemma3.dump beside this file. Weights go to GGUF by the definition of each architecture, the dump comes from tools/export/transformers_dump.py.

    pip install torch transformers gguf xxhash && python3 make_dumps.py
"""
import sys
from pathlib import Path

import gguf
import torch
import transformers

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "tools/export"))
from transformers_dump import write_dump  # noqa: E402

SHAPE = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=8, vocab_size=64,
             max_position_embeddings=64, attn_implementation="eager")
IDS = [1, 17, 5, 63, 0, 22, 22, 9, 40, 31, 2, 58, 13]
LAYER_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
               "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
LLAMA_NAMES = LAYER_NAMES | {"post_attention_layernorm": "ffn_norm"}
GEMMA_NAMES = LAYER_NAMES | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                             "post_feedforward_layernorm": "post_ffw_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
OUTER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name, layer_names):
    module, kind = name.rsplit(".", 1)
    if module in OUTER_NAMES:
        return f"{OUTER_NAMES[module]}.{kind}"
    _, _, layer, rest = module.split(".", 3)
    return f"blk.{layer}.{layer_names[rest]}.{kind}"


def randomise(model):
    """Weights that leave no op idle: scores that differ, norms and biases that matter."""
    generator = torch.Generator().manual_seed(5)
    for name, weight in model.named_parameters():
        values = torch.randn(weight.shape, generator=generator)
        is_norm = "norm" in name
        spread = 0.3 if is_norm or name.endswith("bias") else 1.0 if "embed" in name else 1.5 / weight.shape[-1] ** 0.5
        centre = 1.0 if is_norm and model.config.model_type == "llama" else 0.0  # Gemma's norms multiply with 1 + weight
        weight.data = centre + spread * values
    return model


def write_gguf(model, architecture, layer_names, more):
    c = model.config
    writer = gguf.GGUFWriter(HERE / f"{architecture}.gguf", architecture)
    writer.add_name(f"random {architecture}")
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_vocab_size(c.vocab_size)
    more(writer, c)
    for name, weight in model.named_parameters():
        values = weight.detach()
        if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            heads = c.num_attention_heads if ".q_proj." in name else c.num_key_value_heads
            values = values.reshape(heads, 2, c.head_dim // 2, -1).transpose(1, 2).reshape(values.shape)
        if architecture == "gemma3" and "norm" in name:
            values = 1.0 + values
        writer.add_tensor(gguf_name(name, layer_names), values.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_keys(writer, c):
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_rope_freq_base(c.rope_theta)


def gemma_keys(writer, c):
    writer.add_rope_freq_base(c.rope_theta)
    writer.add_key_value("gemma3.rope.freq_base_swa", c.rope_local_base_freq, gguf.GGUFValueType.FLOAT32)
    writer.add_sliding_window(c.sliding_window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])


def main():
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=2, rope_theta=10000.0, rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True, tie_word_embeddings=False, **SHAPE))
    gemma3 = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        num_hidden_layers=3, rope_theta=1000000.0, rope_local_base_freq=10000.0, sliding_window=5, query_pre_attn_scalar=SHAPE["head_dim"],
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], **SHAPE))
    for model, architecture, names, keys in ((llama, "llama", LLAMA_NAMES, llama_keys), (gemma3, "gemma3", GEMMA_NAMES, gemma_keys)):
        write_gguf(randomise(model), architecture, names, keys)
        write_dump(model, IDS, HERE / f"{architecture}.dump", f"random {architecture}", chunk=8)


main()
