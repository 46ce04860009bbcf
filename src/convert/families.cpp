// One table a family: names in the folder, names in the file, what happens on the way; below it the keys. Layers are {}, experts {x}.
#include "convert/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "assay/error.h"
#include "base/shown.h"

namespace assay::converting {
namespace {

using parts::key_lengths;
using parts::rope;
using parts::sizes;

constexpr std::array kEnds = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.norm.weight", "output_norm.weight"},
    Rule{"lm_head.weight", "output.weight", As::tied},
};
constexpr std::array kNormsBefore = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
};
// Queries and keys as they are: the architecture turns halves, as the checkpoint does.
constexpr std::array kAttention = {
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
constexpr std::array kAttentionPairs = {
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", As::rope_q},
    Rule{"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", As::rope_q, true},
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", As::rope_k},
    Rule{"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", As::rope_k, true},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", As::plain, true},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", As::plain, true},
};
constexpr std::array kHeadNorms = {
    Rule{"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    Rule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
};
constexpr std::array kGatedFfn = {
    Rule{"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    Rule{"model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", As::plain, true},
    Rule{"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", As::plain, true},
    Rule{"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", As::plain, true},
};
constexpr std::array kExperts = {
    Rule{"model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
};

// A bias is there if and only if config.json says so.
void check_bias(Draft& d, std::string_view flag, std::string_view tensor, bool otherwise = false) {
  const bool wanted = d.config.flag(flag, otherwise);
  const bool found = std::any_of(d.outputs.begin(), d.outputs.end(), [&](const Output& o) { return o.name == tensor; });
  if (wanted != found) {
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}, but the folder has {} {}", flag, wanted, found ? "a" : "no", tensor));
  }
}

// A window that config.json has and the family's file has no key for.
void note_window(Draft& d, std::string_view key) {
  const auto window = d.config.find_count(key);
  if (!window || *window >= d.config.count("max_position_embeddings")) return;
  d.notes.push_back(fmt::format("config.json: {} = {} has no key in {} files; every token sees all before it, so answers differ beyond {} tokens", key, *window,
                                d.architecture(), *window));
}

void require_no_window(Draft& d) {
  if (d.config.flag("use_sliding_window", false)) {
    throw Error(Errc::unsupported, fmt::format("config.json: use_sliding_window is true; {} files have no key for windows", d.architecture()));
  }
  d.config.mark_read("sliding_window");
  d.config.mark_read("layer_types");
}

void llama_keys(Draft& d) {
  sizes(d);
  key_lengths(d);
  d.count("vocab_size", d.config.count("vocab_size"));
  d.count("rope.dimension_count", parts::head_dim(d));
  rope(d, {.llama3 = true});
  d.config.expect("hidden_act", {"silu"});
}

// Classes that derive head_dim where config.json has none say it nonetheless.
void derive_head_dim(Draft& d) {
  if (d.config.has("head_dim")) return;
  const int64_t dim = parts::head_dim(d);
  d.count("attention.key_length", dim);
  d.count("attention.value_length", dim);
}

void llama(Draft& d) {
  llama_keys(d);
  derive_head_dim(d);
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttentionPairs);
  d.take(kGatedFfn);
  check_bias(d, "attention_bias", "blk.0.attn_q.bias");
  check_bias(d, "attention_bias", "blk.0.attn_output.bias");
  check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

void mistral(Draft& d) {
  llama_keys(d);
  derive_head_dim(d);
  note_window(d, "sliding_window");
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttentionPairs);
  d.take(kGatedFfn);
}

constexpr std::array kMixtralExperts = {
    Rule{"model.layers.{}.block_sparse_moe.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.block_sparse_moe.experts.{x}.w1.weight", "blk.{}.ffn_gate_exps.weight"},
    Rule{"model.layers.{}.block_sparse_moe.experts.{x}.w3.weight", "blk.{}.ffn_up_exps.weight"},
    Rule{"model.layers.{}.block_sparse_moe.experts.{x}.w2.weight", "blk.{}.ffn_down_exps.weight"},
};

void mixtral(Draft& d) {
  llama_keys(d);
  note_window(d, "sliding_window");
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttentionPairs);
  d.take(kMixtralExperts);
}

void smollm3(Draft& d) {
  llama_keys(d);
  require_no_window(d);
  const Json* turns = d.config.find("no_rope_layers");
  if (turns != nullptr && turns->array() != nullptr) {
    for (size_t layer = 0; layer < turns->array()->size(); ++layer) {
      const bool turns_here = number_of((*turns->array())[layer], "no_rope_layers") != 0;
      if (turns_here == ((layer + 1) % 4 == 0)) {
        throw Error(Errc::unsupported, fmt::format("config.json: no_rope_layers is {} for layer {}; smollm3 files have no key for it, and every fourth layer "
                                                   "does not turn", turns_here ? 1 : 0, layer));
      }
    }
  }
  if (d.config.find_count("no_rope_layer_interval").value_or(4) != 4) {
    throw Error(Errc::unsupported, "config.json: no_rope_layer_interval is not 4, and smollm3 files have no key for it");
  }
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttentionPairs);
  d.take(kGatedFfn);
  check_bias(d, "attention_bias", "blk.0.attn_q.bias");
  check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

void granite(Draft& d) {
  sizes(d);
  d.count("vocab_size", d.config.count("vocab_size"));
  d.config.mark_read("head_dim");  // the class reads none
  const int64_t width = d.config.count("hidden_size");
  if (width % d.n_heads != 0) throw Error(Errc::bad_file, fmt::format("config.json: hidden_size is {}, which {} heads do not divide", width, d.n_heads));
  d.count("rope.dimension_count", width / d.n_heads);
  rope(d);
  d.config.expect("hidden_act", {"silu"});
  const auto scale = [&](std::string_view from, std::string_view to) {
    if (const auto value = d.config.find_number(from); value && *value != 0) d.number(to, *value);
  };
  scale("attention_multiplier", "attention.scale");
  scale("embedding_multiplier", "embedding_scale");
  scale("residual_multiplier", "residual_scale");
  scale("logits_scaling", "logit_scale");
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttentionPairs);
  d.take(kGatedFfn);
  check_bias(d, "attention_bias", "blk.0.attn_q.bias");
  check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

constexpr std::array kPlainFfn = {
    Rule{"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", As::plain, true},
    Rule{"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", As::plain, true},
};

void arcee(Draft& d) {
  sizes(d);
  key_lengths(d);
  derive_head_dim(d);
  d.count("vocab_size", d.config.count("vocab_size"));
  d.count("rope.dimension_count", parts::head_dim(d));
  rope(d);
  d.config.expect("hidden_act", {"relu2"});
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttentionPairs);
  d.take(kPlainFfn);
  check_bias(d, "attention_bias", "blk.0.attn_q.bias");
  check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

void qwen2(Draft& d) {
  sizes(d);
  key_lengths(d);
  rope(d);
  require_no_window(d);
  d.config.expect("hidden_act", {"silu"});
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttention);
  d.take(kGatedFfn);
}

void qwen3(Draft& d) {
  sizes(d);
  key_lengths(d);
  rope(d);
  require_no_window(d);
  d.config.expect("hidden_act", {"silu"});
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttention);
  d.take(kHeadNorms);
  d.take(kGatedFfn);
  check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

// Families of experts in every layer: layers without them have no place in the file's keys.
void require_experts_everywhere(Draft& d) {
  const Json* dense = d.config.find("mlp_only_layers");
  if ((dense != nullptr && dense->array() != nullptr && !dense->array()->empty()) || d.config.find_count("decoder_sparse_step").value_or(1) != 1) {
    throw Error(Errc::unsupported, fmt::format("config.json: mlp_only_layers or decoder_sparse_step leave layers without experts; {} files have them in all",
                                               d.architecture()));
  }
}

constexpr std::array kSharedExpert = {
    Rule{"model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
};

void qwen2moe(Draft& d) {
  sizes(d);
  key_lengths(d);
  rope(d);
  require_no_window(d);
  require_experts_everywhere(d);
  d.config.expect("hidden_act", {"silu"});
  d.config.expect_flag("norm_topk_prob", false);
  d.count("expert_feed_forward_length", d.config.count("moe_intermediate_size"));
  d.count("expert_shared_feed_forward_length", d.config.count("shared_expert_intermediate_size"));
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttention);
  d.take(kExperts);
  d.take(kSharedExpert);
}

void qwen3moe(Draft& d) {
  sizes(d);
  key_lengths(d);
  rope(d);
  require_no_window(d);
  require_experts_everywhere(d);
  d.config.expect("hidden_act", {"silu"});
  if (!d.config.flag("norm_topk_prob", false)) {
    throw Error(Errc::unsupported, "config.json: norm_topk_prob is false; qwen3moe files have no key for it, and routers are normalised");
  }
  d.count("expert_feed_forward_length", d.config.count("moe_intermediate_size"));
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttention);
  d.take(kHeadNorms);
  d.take(kExperts);
  check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

void olmoe(Draft& d) {
  sizes(d);
  key_lengths(d);
  rope(d);
  d.number("attention.layer_norm_rms_epsilon", 1e-5);
  if (std::abs(d.config.number("rms_norm_eps") - 1e-5) > 1e-12) {
    throw Error(Errc::unsupported, fmt::format("config.json: rms_norm_eps is {}; olmoe files say 1e-05", d.config.number("rms_norm_eps")));
  }
  d.config.expect("hidden_act", {"silu"});
  d.config.expect_flag("norm_topk_prob", false);
  if (d.config.has("clip_qkv")) throw Error(Errc::unsupported, "config.json: clip_qkv is there; olmoe files have no key for it");
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttention);
  d.take(kHeadNorms);
  d.take(kExperts);
  check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

constexpr std::array kNormsAfter = {
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    Rule{"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
};

void olmo2_keys(Draft& d, const parts::RopeOptions& options) {
  sizes(d);
  key_lengths(d);
  rope(d, options);
  d.config.expect("hidden_act", {"silu"});
}

void olmo2_tensors(Draft& d) {
  d.take(kEnds);
  d.take(kAttention);
  d.take(kHeadNorms);
  d.take(kNormsAfter);
  d.take(kGatedFfn);
  check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

void olmo2(Draft& d) {
  olmo2_keys(d, {});
  olmo2_tensors(d);
}

void olmo3(Draft& d) {
  olmo2_keys(d, {.local_theta = 0});
  d.count("attention.sliding_window", d.config.count("sliding_window"));
  d.flags("attention.sliding_window_pattern", parts::window_layers(d, [](int64_t layer) { return (layer + 1) % 4 != 0; }));
  olmo2_tensors(d);
}

constexpr std::array kSeedNorms = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
};

void seed_oss(Draft& d) {
  sizes(d);
  key_lengths(d);
  rope(d);
  d.config.expect("hidden_act", {"silu"});
  d.take(kEnds);
  d.take(kSeedNorms);
  d.take(kAttention);
  d.take(kGatedFfn);
  check_bias(d, "attention_bias", "blk.0.attn_q.bias", true);
  check_bias(d, "attention_out_bias", "blk.0.attn_output.bias");
  check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

constexpr std::array kStarcoder2 = {
    Rule{"model.norm.bias", "output_norm.bias"},
    Rule{"model.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    Rule{"model.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
    Rule{"model.layers.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias", As::plain, true},
    Rule{"model.layers.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.layers.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias", As::plain, true},
};

void starcoder2(Draft& d) {
  sizes(d);
  rope(d);
  d.number("attention.layer_norm_epsilon", d.config.number("norm_epsilon"));
  note_window(d, "sliding_window");
  d.config.expect("hidden_act", {"gelu_pytorch_tanh"});
  d.config.expect("norm_type", {"layer_norm"});
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kAttention);
  d.take(kStarcoder2);
  check_bias(d, "use_bias", "blk.0.attn_q.bias", true);
  check_bias(d, "use_bias", "blk.0.ffn_up.bias", true);
}

constexpr std::array kGemmaEnds = {
    Rule{"model.embed_tokens.weight", "token_embd.weight", As::vocabulary},
    Rule{"model.norm.weight", "output_norm.weight", As::plus_one},
};
constexpr std::array kGemmaNorms = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", As::plus_one},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", As::plus_one},
};
constexpr std::array kGemma2Norms = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", As::plus_one},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", As::plus_one},
    Rule{"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", As::plus_one},
    Rule{"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", As::plus_one},
};
constexpr std::array kGemma3HeadNorms = {
    Rule{"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", As::plus_one},
    Rule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", As::plus_one},
};

// The head is the embedding in all of them; a copy of it is of no use.
void gemma_ends(Draft& d) {
  if (!d.config.flag("tie_word_embeddings", true)) throw Error(Errc::unsupported, "config.json: tie_word_embeddings is false; gemma files have no head of their own");
  d.leave("lm_head.weight");
  d.config.expect_flag("attention_bias", false);
  d.config.expect_flag("use_bidirectional_attention", false);
  d.take(kGemmaEnds);
}

// Where the file has no key for the base, it is 10000 and nothing is scaled.
void require_plain_rope(Draft& d) {
  const Json* params = d.config.find("rope_parameters");
  if (params == nullptr) params = d.config.find("rope_scaling");
  const Json* theta = params != nullptr ? params->find("rope_theta") : nullptr;
  if (theta == nullptr) theta = d.config.find("rope_theta");
  const std::string_view type = params == nullptr ? std::string_view() : params->text("rope_type");
  if ((theta != nullptr && number_of(*theta, "rope_theta") != 10000) || (!type.empty() && type != "default")) {
    throw Error(Errc::unsupported, fmt::format("config.json: {} files have no key for a rope_theta other than 10000, nor for scaling", d.architecture()));
  }
}

void gemma(Draft& d) {
  sizes(d);
  key_lengths(d);
  require_plain_rope(d);
  d.config.expect("hidden_act", {"gelu", "gelu_pytorch_tanh"});  // "gelu" is said and the tanh form meant, in the class itself
  d.config.expect("hidden_activation", {"gelu_pytorch_tanh"});
  gemma_ends(d);
  d.take(kGemmaNorms);
  d.take(kAttention);
  d.take(kGatedFfn);
}

// The scale of the scores has no key: readers know it from the model's size.
void require_score_scale(Draft& d, int64_t n_layers_of_largest) {
  const double scalar = d.config.number("query_pre_attn_scalar");
  const double expected = d.n_layers == n_layers_of_largest
                              ? static_cast<double>(d.config.count("hidden_size")) / static_cast<double>(d.n_heads)
                              : static_cast<double>(d.config.count("head_dim"));
  if (scalar != expected) {
    throw Error(Errc::unsupported, fmt::format("config.json: query_pre_attn_scalar is {}; {} files have no key for it, and readers take {}", scalar,
                                               d.architecture(), expected));
  }
}

void gemma2(Draft& d) {
  sizes(d);
  key_lengths(d);
  require_plain_rope(d);
  require_score_scale(d, 46);
  d.number("attn_logit_softcapping", d.config.number("attn_logit_softcapping"));
  d.number("final_logit_softcapping", d.config.number("final_logit_softcapping"));
  d.count("attention.sliding_window", d.config.count("sliding_window"));
  const std::vector<bool> windows = parts::window_layers(d, [](int64_t layer) { return layer % 2 == 0; });
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    if (windows[layer] != (layer % 2 == 0)) throw Error(Errc::unsupported, "config.json: layer_types are not window and full in turn; gemma2 files have no key for them");
  }
  d.config.mark_read("hidden_act");
  d.config.expect("hidden_activation", {"gelu_pytorch_tanh"});
  gemma_ends(d);
  d.take(kGemma2Norms);
  d.take(kAttention);
  d.take(kGatedFfn);
}

void gemma3(Draft& d) {
  sizes(d);
  key_lengths(d);
  rope(d, {.local_theta = 10000});
  require_score_scale(d, 62);
  if (d.config.has("attn_logit_softcapping")) throw Error(Errc::unsupported, "config.json: attn_logit_softcapping is there; gemma3 files have no key for it");
  if (const auto cap = d.config.find_number("final_logit_softcapping"); cap && *cap != 0) d.number("final_logit_softcapping", *cap);
  d.count("attention.sliding_window", d.config.count("sliding_window"));
  if (d.config.find_count("sliding_window_pattern").value_or(6) != 6) {
    throw Error(Errc::unsupported, "config.json: sliding_window_pattern is not 6; gemma3 files have no key for it");
  }
  const std::vector<bool> windows = parts::window_layers(d, [](int64_t layer) { return layer % 6 != 5; });
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    if (windows[layer] != (layer % 6 != 5)) throw Error(Errc::unsupported, "config.json: layer_types are not five windows and one full; gemma3 files have no key for them");
  }
  d.config.mark_read("hidden_act");
  d.config.expect("hidden_activation", {"gelu_pytorch_tanh"});
  gemma_ends(d);
  d.take(kGemma2Norms);
  d.take(kGemma3HeadNorms);
  d.take(kAttention);
  d.take(kGatedFfn);
}

constexpr std::array kPhi3 = {
    Rule{"model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    Rule{"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
};

std::vector<float> rope_factors(const Json& scaling, std::string_view key, int64_t n) {
  const Json* found = scaling.find(key);
  if (found == nullptr || found->array() == nullptr || found->array()->size() != static_cast<size_t>(n)) {
    throw Error(Errc::bad_file, fmt::format("config.json: rope_scaling needs {}, an array of {} numbers", key, n));
  }
  std::vector<float> factors;
  for (const Json& one : *found->array()) factors.push_back(static_cast<float>(number_of(one, key)));
  return factors;
}

void long_rope(Draft& d, const Json& scaling, int64_t original, int64_t rope_dim) {
  std::string_view type = scaling.text("rope_type");
  if (type.empty()) type = scaling.text("type");
  if (type.empty() || type == "default") return;
  if (type != "longrope" && type != "su") throw Error(Errc::unsupported, fmt::format("config.json: rope scaling \"{}\" is not known for phi3", type));
  const double scale = static_cast<double>(d.config.count("max_position_embeddings")) / static_cast<double>(original);
  d.number("rope.scaling.attn_factor", scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(static_cast<double>(original))) : 1.0);
  d.make("rope_factors_long.weight", rope_factors(scaling, "long_factor", rope_dim / 2));
  d.make("rope_factors_short.weight", rope_factors(scaling, "short_factor", rope_dim / 2));
}

void phi3(Draft& d) {
  sizes(d);
  Config& c = d.config;
  const Json* params = c.find_any({"rope_parameters", "rope_scaling"});
  static const Json kNone;
  if (params == nullptr) params = &kNone;
  const auto own = [&](std::string_view key) { return params->find(key) != nullptr ? params->find(key) : c.find(key); };
  const Json* original = own("original_max_position_embeddings");
  const int64_t n_original = original == nullptr ? c.count("max_position_embeddings") : static_cast<int64_t>(number_of(*original, "original_max_position_embeddings"));
  const Json* partial = own("partial_rotary_factor");
  const double share = partial == nullptr ? 1.0 : number_of(*partial, "partial_rotary_factor");
  const int64_t rope_dim = static_cast<int64_t>(share * static_cast<double>(c.count("hidden_size"))) / d.n_heads;
  d.count("rope.scaling.original_context_length", n_original);
  d.count("rope.dimension_count", rope_dim);
  const Json* theta = own("rope_theta");
  d.number("rope.freq_base", theta == nullptr ? 10000.0 : number_of(*theta, "rope_theta"));
  const auto window = c.find_count("sliding_window");
  d.count("attention.sliding_window", window.value_or(0));
  if (window && *window < c.count("max_position_embeddings")) {
    d.notes.push_back(fmt::format("config.json: sliding_window = {} is written; readers of phi3 files let every token see all before it", *window));
  }
  c.expect("hidden_act", {"silu"});
  c.expect_flag("attention_bias", false);
  long_rope(d, *params, n_original, rope_dim);
  d.take(kEnds);
  d.take(kNormsBefore);
  d.take(kPhi3);
}

// What the classes say where config.json says nothing; sizes among them, since published folders leave those out too (gemma 3 4B has no head count).
constexpr std::string_view kLlamaDefaults =
    R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"hidden_act":"silu",
        "max_position_embeddings":2048,"rms_norm_eps":1e-6,"rope_theta":10000.0})";
constexpr std::string_view kMistralDefaults =
    R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
        "hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-6,"rope_theta":10000.0,"sliding_window":4096})";
constexpr std::string_view kMixtralDefaults =
    R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
        "hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":1000000.0,"num_experts_per_tok":2,"num_local_experts":8})";
constexpr std::string_view kQwen2Defaults =
    R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,
        "hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":10000.0})";
constexpr std::string_view kQwen3Defaults =
    R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,
        "head_dim":128,"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":10000.0})";
constexpr std::string_view kGemmaDefaults =
    R"({"vocab_size":256000,"hidden_size":3072,"intermediate_size":24576,"num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":16,
        "head_dim":256,"max_position_embeddings":8192,"rms_norm_eps":1e-6,"tie_word_embeddings":true})";
constexpr std::string_view kGemma2Defaults =
    R"({"vocab_size":256000,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,
        "head_dim":256,"max_position_embeddings":8192,"rms_norm_eps":1e-6,"tie_word_embeddings":true,"query_pre_attn_scalar":256,"sliding_window":4096,
        "attn_logit_softcapping":50.0,"final_logit_softcapping":30.0})";
constexpr std::string_view kGemma3Defaults =
    R"({"vocab_size":262208,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,
        "head_dim":256,"max_position_embeddings":131072,"rms_norm_eps":1e-6,"tie_word_embeddings":true,"query_pre_attn_scalar":256,"sliding_window":4096,
        "rope_theta":1000000.0})";
constexpr std::string_view kPhi3Defaults =
    R"({"vocab_size":32064,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,"num_attention_heads":32,"hidden_act":"silu",
        "max_position_embeddings":4096,"original_max_position_embeddings":4096,"rms_norm_eps":1e-5,"rope_theta":10000.0})";
// The others have to say their sizes.
constexpr std::string_view kTied = R"({"tie_word_embeddings":true})";

}  // namespace

const std::vector<Family>& families() {
  using enum VocabularyKind;
  static const std::vector<Family> kAll = {
      {"llama", {"LlamaForCausalLM", "LLaMAForCausalLM"}, kLlamaDefaults, pieces_or_bpe, llama, true},
      {"llama", {"MistralForCausalLM"}, kMistralDefaults, pieces_or_bpe, mistral, true},
      {"llama", {"MixtralForCausalLM"}, kMixtralDefaults, pieces_or_bpe, mixtral, true},
      {"qwen2", {"Qwen2ForCausalLM"}, kQwen2Defaults, pieces_or_bpe, qwen2},
      {"qwen3", {"Qwen3ForCausalLM"}, kQwen3Defaults, pieces_or_bpe, qwen3},
      {"gemma", {"GemmaForCausalLM"}, kGemmaDefaults, pieces, gemma},
      {"gemma2", {"Gemma2ForCausalLM"}, kGemma2Defaults, pieces, gemma2},
      {"gemma3", {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"}, kGemma3Defaults, pieces, gemma3},
      {"phi3", {"Phi3ForCausalLM"}, kPhi3Defaults, pieces_and_added, phi3},
      {"smollm3", {"SmolLM3ForCausalLM"}, {}, pieces_or_bpe, smollm3, true},
      {"granite", {"GraniteForCausalLM"}, {}, pieces_or_bpe, granite, true},
      {"arcee", {"ArceeForCausalLM"}, {}, pieces_or_bpe, arcee, true},
      {"olmo2", {"Olmo2ForCausalLM"}, {}, bpe, olmo2},
      {"olmo2", {"Olmo3ForCausalLM"}, {}, bpe, olmo3},
      {"seed_oss", {"SeedOssForCausalLM"}, {}, bpe, seed_oss},
      {"starcoder2", {"Starcoder2ForCausalLM"}, kTied, bpe, starcoder2},
      {"qwen2moe", {"Qwen2MoeForCausalLM"}, {}, bpe, qwen2moe},
      {"qwen3moe", {"Qwen3MoeForCausalLM"}, {}, bpe, qwen3moe},
      {"olmoe", {"OlmoeForCausalLM"}, {}, bpe, olmoe},
  };
  return kAll;
}

const Family& family_of(const Json& config) {
  const Json* named = config.find("architectures");
  if (named == nullptr || named->array() == nullptr || named->array()->size() != 1 || named->array()->front().string() == nullptr) {
    throw Error(Errc::bad_file, fmt::format("config.json: architectures is {}; needs an array of one name", named == nullptr ? "missing" : named->shown()));
  }
  const std::string& wanted = *named->array()->front().string();
  std::string known;
  for (const Family& family : families()) {
    for (const std::string_view name : family.classes) {
      if (name == wanted) return family;
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
  }
  throw Error(Errc::unsupported, fmt::format("config.json: the architecture {} is not known; assay converts {}", base::shown(wanted), known));
}

}  // namespace assay::converting
