"""Goldens of models that choose blocks of keys: the golden minimaxm3 with fewer blocks than its prompt has, its numbers by transformers in float64.

usage: blocks.py ARCH_FOLDER     (what random_settings.py needs) writes minimaxm3-blocks.{gguf,json} beside ARCH_FOLDER/minimaxm3.gguf

The weights are that file's. With its own keys transformers' numbers must be those of minimaxm3.json, else nothing is written.
"""
import json
import pathlib
import sys

import numpy as np
import random_settings
import retell
import torch
from gguf import GGUFReader
from transformers.models.minimax_m3_vl import configuration_minimax_m3_vl, modeling_minimax_m3_vl

OWN, FEWER = (16, 4, 1), (3, 4, 1)  # blocks that are chosen, keys of a block, last blocks that always are


def weights_of(path):
    """By the names of transformers; norms of the file are 1 + those."""
    t = {x.name: torch.tensor(np.array(x.data).reshape([int(n) for n in reversed(x.shape)]).astype(np.float64)) for x in GGUFReader(path).tensors}
    found = {"model.embed_tokens.weight": t["token_embd.weight"], "lm_head.weight": t["output.weight"], "model.norm.weight": t["output_norm.weight"] - 1}
    for layer in (0, 1):
        to, of = f"model.layers.{layer}.", f"blk.{layer}."
        for part in "qkv":
            found[f"{to}self_attn.{part}_proj.weight"] = t[f"{of}attn_{part}.weight"]
        for part in "qk":
            found[f"{to}self_attn.{part}_norm.weight"] = t[f"{of}attn_{part}_norm.weight"] - 1
        found[to + "self_attn.o_proj.weight"] = t[of + "attn_output.weight"]
        found[to + "input_layernorm.weight"] = t[of + "attn_norm.weight"] - 1
        found[to + "post_attention_layernorm.weight"] = t[of + "ffn_norm.weight"] - 1
    found["model.layers.0.mlp.gate_up_proj.weight"] = torch.cat([t["blk.0.ffn_gate.weight"], t["blk.0.ffn_up.weight"]])
    found["model.layers.0.mlp.down_proj.weight"] = t["blk.0.ffn_down.weight"]
    for part in "qk":
        found[f"model.layers.1.self_attn.indexer.{part}_proj.weight"] = t[f"blk.1.indexer.{part}_proj.weight"]
        found[f"model.layers.1.self_attn.indexer.{part}_norm.weight"] = t[f"blk.1.indexer.{part}_norm.weight"] - 1
    found["model.layers.1.mlp.gate.weight"] = t["blk.1.ffn_gate_inp.weight"]
    found["model.layers.1.mlp.gate.e_score_correction_bias"] = t["blk.1.exp_probs_b.bias"]
    found["model.layers.1.mlp.experts.gate_up_proj"] = torch.cat([t["blk.1.ffn_gate_exps.weight"], t["blk.1.ffn_up_exps.weight"]], 1)
    found["model.layers.1.mlp.experts.down_proj"] = t["blk.1.ffn_down_exps.weight"]
    found["model.layers.1.mlp.shared_experts.gate_up_proj.weight"] = torch.cat([t["blk.1.ffn_gate_shexp.weight"], t["blk.1.ffn_up_shexp.weight"]])
    found["model.layers.1.mlp.shared_experts.down_proj.weight"] = t["blk.1.ffn_down_shexp.weight"]
    return found


def logits_of(weights, blocks, ids):
    n_best, n_block, n_local = blocks
    config = configuration_minimax_m3_vl.MiniMaxM3VLTextConfig(
        vocab_size=320, hidden_size=64, intermediate_size=16, dense_intermediate_size=64, shared_intermediate_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, num_local_experts=8, num_experts_per_tok=3, routed_scaling_factor=2.0, rotary_dim=16, rms_norm_eps=float(np.float32(1e-6)), max_position_embeddings=256,
        index_n_heads=2, index_head_dim=32, index_topk_blocks=n_best, index_block_size=n_block, index_local_blocks=n_local, layer_types=["full_attention", "minimax_m3_sparse"],
        mlp_layer_types=["dense", "sparse"], rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5), bos_token_id=1, eos_token_id=2, pad_token_id=None)
    config._experts_implementation = "eager"
    with random_settings.wide(torch), torch.no_grad():
        model = modeling_minimax_m3_vl.MiniMaxM3VLForCausalLM(config).eval().double()
        model.set_attn_implementation("eager")
        model.load_state_dict(weights)
        return model(torch.tensor([ids]), use_cache=False).logits[0]


class Gaps:
    """The smallest distance, over all choices, between the last of what is taken and the next one."""

    def __init__(self):
        self.smallest = float("inf")

    def __enter__(self):
        self.topk, self.function = torch.Tensor.topk, torch.topk

        def watched(x, k, *rest, **more):
            falling = x.sort(-1, descending=True).values
            if falling.shape[-1] > k:
                gap = (falling[..., k - 1] - falling[..., k])[torch.isfinite(falling[..., k - 1]) & torch.isfinite(falling[..., k])]
                self.smallest = min([self.smallest, *gap.flatten().tolist()])
            return self.topk(x, k, *rest, **more)
        torch.Tensor.topk = torch.topk = watched
        return self

    def __exit__(self, *_):
        torch.Tensor.topk, torch.topk = self.topk, self.function


def main():
    folder = pathlib.Path(sys.argv[1])
    golden, weights = json.loads((folder / "minimaxm3.json").read_text()), weights_of(folder / "minimaxm3.gguf")
    own = torch.logsumexp(logits_of(weights, OWN, golden["ids"]), -1)
    assert float((own - torch.tensor(golden["logsumexp"], dtype=torch.float64)).abs().max()) < 1e-7
    with Gaps() as gaps:
        logits = logits_of(weights, FEWER, golden["ids"])
    assert gaps.smallest > 2e-4, gaps.smallest
    likely, ids = torch.log_softmax(logits, -1), golden["ids"]

    def written(numbers):
        return [float(f"{x:.10g}") for x in numbers.tolist()]
    made = {"arch": golden["arch"], "general_architecture": golden["general_architecture"], "ids": ids, "logits_last3": [written(row) for row in logits[-3:]],
            "logsumexp": written(torch.logsumexp(logits, -1)), "nll": written(-likely[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]),
            "top_k_smallest_gap": gaps.smallest}
    (folder / "minimaxm3-blocks.json").write_text(json.dumps(made))
    told = retell.Told(folder / "minimaxm3.gguf")
    for key, value in zip(("top_k", "block_size", "local_blocks"), FEWER):
        name = "minimax-m3.attention.indexer." + key
        told.keys[name] = (value, *told.keys[name][1:])
    told.write(folder / "minimaxm3-blocks.gguf")
    print("smallest gap", gaps.smallest)


if __name__ == "__main__":
    main()
