// Names that many families share: what Hugging Face's decoders call a tensor, and what it is called in the file. Layers
// are {}, experts {x}.
#pragma once

#include <array>

#include "convert/draft.h"

namespace assay::converting::rules {

inline constexpr std::array kEnds = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.norm.weight", "output_norm.weight"},
    Rule{"lm_head.weight", "output.weight", As::tied},
};
inline constexpr std::array kNormsBefore = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
};
// Queries and keys as they are: the architecture turns halves, as the checkpoint does.
inline constexpr std::array kAttention = {
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    Rule{"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", As::plain, true},
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    Rule{"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", As::plain, true},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", As::plain, true},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", As::plain, true},
};
// The architecture turns neighbours.
inline constexpr std::array kAttentionPairs = {
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", As::rope_q},
    Rule{"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", As::rope_q, true},
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", As::rope_k},
    Rule{"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", As::rope_k, true},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", As::plain, true},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", As::plain, true},
};
inline constexpr std::array kHeadNorms = {
    Rule{"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    Rule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
};
inline constexpr std::array kGatedFfn = {
    Rule{"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    Rule{"model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", As::plain, true},
    Rule{"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", As::plain, true},
    Rule{"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", As::plain, true},
};
inline constexpr std::array kExperts = {
    Rule{"model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
};

inline constexpr std::array kPlainFfn = {
    Rule{"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", As::plain, true},
    Rule{"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", As::plain, true},
};

inline constexpr std::array kNormsAfter = {
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    Rule{"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
};

inline constexpr std::array kSharedExperts = {
    Rule{"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
};
// One beside the experts, behind a gate of its own.
inline constexpr std::array kGatedSharedExpert = {
    Rule{"model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
};
// Experts in the way of Mixtral.
inline constexpr std::array kSparseMoe = {
    Rule{"model.layers.{}.block_sparse_moe.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.block_sparse_moe.experts.{x}.w1.weight", "blk.{}.ffn_gate_exps.weight"},
    Rule{"model.layers.{}.block_sparse_moe.experts.{x}.w3.weight", "blk.{}.ffn_up_exps.weight"},
    Rule{"model.layers.{}.block_sparse_moe.experts.{x}.w2.weight", "blk.{}.ffn_down_exps.weight"},
};
// Where the norm before the FFN has the name that others give to the one behind the attention.
inline constexpr std::array kNormsBeforeAsPost = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
};
// LayerNorm.
inline constexpr std::array kNormBiases = {
    Rule{"model.norm.bias", "output_norm.bias"},
    Rule{"model.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    Rule{"model.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
};

}  // namespace assay::converting::rules
