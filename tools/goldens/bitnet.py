"""The golden of bitnet: a random model through transformers' BitNetForCausalLM in float64, and its file.

usage: bitnet.py FOLDER     (pip install torch transformers gguf; CPU is enough) writes FOLDER/bitnet.gguf and bitnet.json

The published 3B model has the gate's SiLU; transformers' class takes it as hidden_act. Norms, rotation and softmax are float64 too, as in the other goldens of
tests/data/goldens/arch. Weights are rounded to half precision, matrices kept as F16.
"""
import json
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

N_LAYERS, HEAD_DIM, N_TOKENS, N_VOCAB = 2, 16, 40, 320
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.attn_sub_norm": "attn_sub_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.ffn_sub_norm": "ffn_sub_norm", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}


def made():
    config = transformers.BitNetConfig(vocab_size=N_VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=N_LAYERS, num_attention_heads=4, num_key_value_heads=2,
                                       hidden_act="silu", max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1,
                                       eos_token_id=2, pad_token_id=None)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for name, values in model.named_parameters():
            drawn = torch.randn_like(values)
            drawn = 1 + 0.1 * drawn if values.ndim == 1 else 0.7 * drawn if "embed" in name else 1.3 * drawn / values.shape[-1] ** 0.5
            values.copy_(drawn.half().float())
    return model


def make_float64(model):
    """What transformers computes in float32 whatever the model's type."""
    model.double()
    turns = 1.0 / (10000.0 ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM))

    def rotation(_self, _x, position_ids):
        angles = position_ids[0].double()[:, None] * turns[None]
        angles = torch.cat([angles, angles], -1)[None]
        return angles.cos(), angles.sin()

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    type(model.model.rotary_emb).forward = rotation
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            type(module).forward = norm
    plain = torch.nn.functional.softmax
    torch.nn.functional.softmax = lambda x, dim=-1, dtype=None: plain(x, dim=dim)


def write(model, path):
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
    names |= {f"model.layers.{i}.{theirs}.weight": f"blk.{i}.{ours}.weight" for i in range(N_LAYERS) for theirs, ours in NAMES.items()}
    out = gguf.GGUFWriter(path, "bitnet")
    out.add_block_count(N_LAYERS)
    out.add_context_length(256)
    out.add_embedding_length(64)
    out.add_feed_forward_length(96)
    out.add_head_count(4)
    out.add_head_count_kv(2)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(10000.0)
    out.add_rope_dimension_count(HEAD_DIM)
    out.add_vocab_size(N_VOCAB)
    vocabulary = gguf.GGUFReader(pathlib.Path(__file__).parents[2] / "tests/data/goldens/arch/qwen2.gguf").fields  # that of the other goldens
    out.add_tokenizer_model("llama")
    out.add_tokenizer_pre("default")
    out.add_token_list(vocabulary["tokenizer.ggml.tokens"].contents())
    out.add_token_scores(vocabulary["tokenizer.ggml.scores"].contents())
    out.add_token_types(vocabulary["tokenizer.ggml.token_type"].contents())
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_add_bos_token(False)
    values = {name: p.detach().numpy().astype(np.float32) for name, p in model.named_parameters()}
    assert set(values) == set(names)
    for theirs, ours in names.items():
        out.add_tensor(ours, values[theirs].astype(np.float16) if values[theirs].ndim == 2 else values[theirs])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(7)
    model = made()
    ids = [1] + torch.randint(3, N_VOCAB, (N_TOKENS - 1,)).tolist()
    write(model, folder / "bitnet.gguf")
    make_float64(model)
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    assert logits.dtype == torch.float64
    short = lambda values: [float(f"{v:.10g}") for v in values]
    sums = torch.logsumexp(logits, -1)
    nll = [float(sums[i] - logits[i, ids[i + 1]]) for i in range(N_TOKENS - 1)]
    (folder / "bitnet.json").write_text(json.dumps({"arch": "BitNetForCausalLM", "general_architecture": "bitnet", "ids": ids, "logits_last3": [short(row) for row in logits[-3:].tolist()],
                                                    "logsumexp": short(sums.tolist()), "nll": short(nll)}))


if __name__ == "__main__":
    main()
