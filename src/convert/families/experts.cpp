// Mixtures of experts with ways of their own.
#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {
namespace {

// Layers that have experts: those from `first` on, or those that mlp_layer_types calls sparse.
std::vector<bool> sparse_layers(Draft& d, int64_t first) {
  std::vector<bool> sparse;
  const std::vector<std::string> types = d.config.texts("mlp_layer_types");
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    sparse.push_back(types.size() == static_cast<size_t>(d.n_layers) ? types[static_cast<size_t>(layer)] == "sparse"
                                                                     : layer >= first);
  }
  return sparse;
}

std::vector<bool> others(const std::vector<bool>& layers) {
  std::vector<bool> rest = layers;
  rest.flip();
  return rest;
}

int64_t n_leading(const std::vector<bool>& sparse) {
  return std::find(sparse.begin(), sparse.end(), true) - sparse.begin();
}

// A file says how many layers come first; all behind them have experts.
void require_sparse_behind(Draft& d, const std::vector<bool>& sparse) {
  for (size_t layer = static_cast<size_t>(n_leading(sparse)); layer < sparse.size(); ++layer) {
    if (!sparse[layer])
      throw Error(Errc::unsupported,
                  fmt::format("config.json: layer {} has no experts, one before it has; {} files have no key for that",
                              layer, d.architecture()));
  }
}

constexpr std::array kScoreBias = {Rule{"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"}};

constexpr std::array kGptOss = {
    Rule{"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    Rule{"model.layers.{}.mlp.router.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.mlp.router.bias", "blk.{}.ffn_gate_inp.bias"},
    Rule{"model.layers.{}.mlp.experts.gate_up_proj_bias", "blk.{}.ffn_gate_exps.bias", As::even},
    Rule{"model.layers.{}.mlp.experts.gate_up_proj_bias", "blk.{}.ffn_up_exps.bias", As::odd},
    Rule{"model.layers.{}.mlp.experts.down_proj_bias", "blk.{}.ffn_down_exps.bias"},
};
constexpr std::array kGptOssPlain = {
    Rule{"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", As::turned_even},
    Rule{"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight", As::turned_odd},
    Rule{"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", As::turned},
};

// MXFP4 as published: 32 values in 16 bytes, and a scale; rows of gate and up take turns.
void packed_experts(Draft& d, const std::string& from, const std::string& to, int64_t first, int64_t step) {
  const StoredTensor& blocks = d.need(from + "_blocks", true);
  const StoredTensor& scales = d.need(from + "_scales", true);
  const std::vector<int64_t>& shape = blocks.shape;
  if (shape.size() != 4 || shape[3] != 16 || shape[1] % step != 0 ||
      scales.shape != std::vector<int64_t>(shape.begin(), shape.end() - 1)) {
    throw Error(Errc::bad_file,
                fmt::format("{} has the shape [{}], its scales [{}]; needs experts, rows, blocks and 16 bytes", from,
                            fmt::join(shape, ", "), fmt::join(scales.shape, ", ")));
  }
  const int64_t n = shape[1] / step;
  std::vector<Slice> slices;
  for (int64_t x = 0; x < shape[0]; ++x)
    slices.push_back({.tensor = &blocks, .first = x * shape[1] + first, .n_rows = n, .step = step});
  d.add(to, {shape[0], n, shape[2] * 32}, std::move(slices)).scales = &scales;
}

// YaRN rounds its corners unless truncate is false, as in the published models.
void require_unrounded_corners(Draft& d) {
  const Json* params = d.config.find_any({"rope_parameters", "rope_scaling"});
  if (params == nullptr || (params->text("rope_type") != "yarn" && params->text("type") != "yarn")) return;
  const Json* truncate = params->find("truncate");
  const bool* rounds = truncate == nullptr ? nullptr : truncate->boolean();
  if (rounds == nullptr || *rounds)
    throw Error(Errc::unsupported,
                "config.json: truncate of the rope scaling is not false; gpt-oss files have no key for it");
}

void gpt_oss(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  require_unrounded_corners(d);
  d.count("attention.sliding_window", d.config.count("sliding_window"));
  d.count("expert_feed_forward_length", d.config.count("intermediate_size"));
  const std::vector<bool> windows = parts::window_layers(d, [](int64_t layer) { return layer % 2 == 0; });
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    if (windows[layer] != (layer % 2 == 0))
      throw Error(Errc::unsupported,
                  "config.json: layer_types are not window and full in turn; gpt-oss files have no key for them");
  }
  d.config.expect("hidden_act", {"silu"});
  for (const char* key : {"swiglu_limit", "experts_per_token", "initial_context_length"}) d.config.mark_read(key);
  d.take(rules::kEnds);
  d.take(rules::kNormsBeforeAsPost);
  d.take(rules::kAttention);
  d.take(kGptOss);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias", true);
  if (d.has("model.layers.0.mlp.experts.down_proj")) return d.take(kGptOssPlain);
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    const std::string from = fmt::format("model.layers.{}.mlp.experts.", layer), to = fmt::format("blk.{}.ffn_", layer);
    packed_experts(d, from + "gate_up_proj", to + "gate_exps.weight", 0, 2);
    packed_experts(d, from + "gate_up_proj", to + "up_exps.weight", 1, 2);
    packed_experts(d, from + "down_proj", to + "down_exps.weight", 0, 1);
  }
}

// What follows is a head that predicts further tokens; the count is of both, since readers take one off the other.
constexpr std::array kNextToken = {
    Rule{"model.layers.{}.eh_proj.weight", "blk.{}.nextn.eh_proj.weight"},
    Rule{"model.layers.{}.embed_tokens.weight", "blk.{}.nextn.embed_tokens.weight", As::plain, true},
    Rule{"model.layers.{}.enorm.weight", "blk.{}.nextn.enorm.weight"},
    Rule{"model.layers.{}.hnorm.weight", "blk.{}.nextn.hnorm.weight"},
    Rule{"model.layers.{}.shared_head.head.weight", "blk.{}.nextn.shared_head_head.weight", As::plain, true},
    Rule{"model.layers.{}.shared_head.norm.weight", "blk.{}.nextn.shared_head_norm.weight", As::plain, true},
};

void glm4moe(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  d.count("rope.dimension_count", static_cast<int64_t>(parts::rotary_share(d, {"partial_rotary_factor"}, 0.5) *
                                                       static_cast<double>(parts::head_dim(d))));
  d.count("expert_feed_forward_length", c.count("moe_intermediate_size"));
  d.count("expert_shared_count", c.count("n_shared_experts"));
  d.count("leading_dense_block_count", c.count("first_k_dense_replace"));
  d.count("expert_gating_func", 2);
  d.number("expert_weights_scale", c.number("routed_scaling_factor"));
  d.flag("expert_weights_norm", c.flag("norm_topk_prob", true));
  const int64_t n_next = c.find_count("num_nextn_predict_layers").value_or(0);
  if (n_next > 64)
    throw Error(Errc::bad_file, fmt::format("config.json: num_nextn_predict_layers is {}; needs at most 64", n_next));
  c.expect("hidden_act", {"silu"});
  std::vector<bool> sparse = sparse_layers(d, c.count("first_k_dense_replace")), all(sparse.size(), true);
  const bool has_next = n_next > 0 && d.has(fmt::format("model.layers.{}.eh_proj.weight", d.n_layers));
  d.count("block_count", d.n_layers + n_next);
  d.count("nextn_predict_layers", n_next);
  if (has_next) {
    sparse.resize(sparse.size() + static_cast<size_t>(n_next), true);
    all.resize(sparse.size(), true);
  } else if (n_next > 0) {
    d.notes.push_back(
        fmt::format("config.json: num_nextn_predict_layers is {}, and the folder has no such layer", n_next));
  }
  d.take(rules::kEnds);
  d.take(rules::kNormsBeforeAsPost, all);
  d.take(rules::kAttention, all);
  if (d.has("model.layers.0.self_attn.q_norm.weight")) d.take(rules::kHeadNorms, all);
  d.take(rules::kGatedFfn, others(sparse));
  d.take(rules::kExperts, sparse);
  d.take(rules::kSharedExperts, sparse);
  d.take(kScoreBias, sparse);
  if (has_next) d.take(kNextToken, d.n_layers, d.n_layers + n_next);
  c.mark_read("use_qk_norm");
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

constexpr std::array kErnieBias = {
    Rule{"model.layers.{}.mlp.moe_statics.e_score_correction_bias", "blk.{}.exp_probs_b.bias"}};

void ernie4_5_moe(Draft& d) {
  Config& c = d.config;
  parts::sizes(d, {.has_experts = false});
  parts::key_lengths(d);
  parts::rope(d);
  d.n_experts = parts::n_experts(d, "moe_num_experts");
  const int64_t first = c.count("moe_layer_start_index"), n_shared = c.find_count("moe_num_shared_experts").value_or(0),
                step = c.count("moe_layer_interval");
  d.count("expert_used_count", c.count("moe_k"));
  d.count("interleave_moe_layer_step", step);
  d.count("leading_dense_block_count", first);
  d.count("expert_feed_forward_length", c.count("moe_intermediate_size"));
  d.count("expert_shared_count", n_shared);
  if (n_shared > 0) d.count("expert_shared_feed_forward_length", c.count("intermediate_size") / d.n_kv_heads);
  if (step != 1)
    throw Error(
        Errc::unsupported,
        fmt::format(
            "config.json: moe_layer_interval is {}; assay converts models with experts in every layer behind the first",
            step));
  if (const Json* last = c.find("moe_layer_end_index"); last != nullptr) {
    if (last->number() == nullptr || !last->number()->integer) {
      throw Error(Errc::bad_file, fmt::format("config.json: moe_layer_end_index is {}", last->shown()));
    }
    const int64_t end = *last->number()->integer;
    if (end >= 0 && end != d.n_layers - 1)
      throw Error(Errc::unsupported,
                  fmt::format("config.json: moe_layer_end_index is {} of {} layers; files have no key for it", end,
                              d.n_layers));
  }
  c.expect("hidden_act", {"silu"});
  c.expect_flag("use_bias", false);
  for (const char* key : {"moe_norm_min", "moe_use_aux_free", "moe_gate", "moe_capacity", "moe_use_hard_gate",
                          "use_rmsnorm", "fuse_rope"})
    c.mark_read(key);
  const std::vector<bool> sparse = sparse_layers(d, first);
  for (const char* next :
       {"model.mtp_block.*", "model.mtp_emb_norm.*", "model.mtp_hidden_norm.*", "model.mtp_linear_proj.*"})
    d.leave(next);
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn, others(sparse));
  d.take(rules::kExperts, sparse);
  d.take(kErnieBias, sparse);
  if (n_shared > 0) d.take(rules::kSharedExperts, sparse);
}

constexpr std::array kMinimaxBias = {
    Rule{"model.layers.{}.block_sparse_moe.e_score_correction_bias", "blk.{}.exp_probs_b.bias"}};

void minimax_m2(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  d.count("expert_feed_forward_length", d.config.count("intermediate_size"));
  const Json* turned = d.config.find("rotary_dim");
  d.count("rope.dimension_count", turned != nullptr
                                      ? d.config.count("rotary_dim")
                                      : static_cast<int64_t>(parts::rotary_share(d, {"partial_rotary_factor"}) *
                                                             static_cast<double>(parts::head_dim(d))));
  d.config.expect("hidden_act", {"silu"});
  for (const char* key : {"use_mtp", "num_mtp_modules", "mtp_transformer_layers", "use_qk_norm", "qk_norm_type",
                          "use_routing_bias", "attn_type_list", "shared_intermediate_size",
                          "layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"}) {
    d.config.mark_read(key);
  }
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kSparseMoe);
  d.take(kMinimaxBias);
}

constexpr std::array kLlama4Dense = {
    Rule{"model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    Rule{"model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight"},
};
constexpr std::array kLlama4Experts = {
    Rule{"model.layers.{}.feed_forward.router.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.feed_forward.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", As::turned_gate},
    Rule{"model.layers.{}.feed_forward.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight", As::turned_up},
    Rule{"model.layers.{}.feed_forward.experts.down_proj", "blk.{}.ffn_down_exps.weight", As::turned},
    Rule{"model.layers.{}.feed_forward.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    Rule{"model.layers.{}.feed_forward.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    Rule{"model.layers.{}.feed_forward.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
};

void llama4(Draft& d) {
  Config& c = d.config;
  parts::llama_keys(d);
  parts::derive_head_dim(d);
  const int64_t step = c.count("interleave_moe_layer_step");
  d.count("feed_forward_length", c.count("intermediate_size_mlp"));
  d.count("interleave_moe_layer_step", step);
  d.count("expert_feed_forward_length", c.count("intermediate_size"));
  if (step == 0) throw Error(Errc::bad_file, "config.json: interleave_moe_layer_step is 0");
  const bool norms_heads = d.n_experts != 128;  // as files mean it
  if (c.flag("use_qk_norm", true) != norms_heads)
    throw Error(Errc::unsupported, fmt::format("config.json: use_qk_norm is {}; llama4 files of {} experts mean {}",
                                               !norms_heads, d.n_experts, norms_heads));
  const std::vector<std::string> types = c.texts("layer_types");
  if (!types.empty() &&
      std::all_of(types.begin(), types.end(), [](const std::string& t) { return t == "full_attention"; }))
    d.count("attention.sliding_window", 0);
  for (const char* key : {"attention_chunk_size", "attn_scale", "attn_temperature_tuning", "floor_scale", "moe_layers",
                          "no_rope_layers", "use_qk_norm", "for_llm_compressor", "no_rope_layer_interval"}) {
    c.mark_read(key);
  }
  std::vector<bool> sparse;
  for (int64_t layer = 0; layer < d.n_layers; ++layer) sparse.push_back((layer + 1) % step == 0);
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(kLlama4Dense, others(sparse));
  d.take(kLlama4Experts, sparse);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

constexpr std::array kExaoneBias = {Rule{"model.layers.{}.mlp.e_score_correction_bias", "blk.{}.exp_probs_b.bias"}};

void exaone_moe(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::derive_head_dim(d);
  parts::rope(d, {.llama3 = true, .scaling = false});
  const int64_t n_shared = c.count("num_shared_experts"), width = c.count("moe_intermediate_size"),
                n_next = c.find_count("num_nextn_predict_layers").value_or(0);
  d.count("vocab_size", c.count("vocab_size"));
  d.count("attention.sliding_window", c.count("sliding_window"));
  d.flags("attention.sliding_window_pattern",
          parts::window_layers(d, [](int64_t layer) { return (layer + 1) % 4 != 0; }));
  d.count("expert_feed_forward_length", width);
  d.count("expert_shared_count", n_shared);
  d.count("expert_shared_feed_forward_length", width * n_shared);
  d.number("expert_weights_scale", c.number("routed_scaling_factor"));
  d.flag("expert_weights_norm", c.flag("norm_topk_prob", true));
  d.count("nextn_predict_layers", 0);
  d.text("rope.scaling.type", "none");
  c.expect("hidden_act", {"silu"});
  for (const char* key :
       {"sliding_window_pattern", "is_moe_layer", "topk_method", "ep_size", "moe_layer_freq", "attn_implementation"})
    c.mark_read(key);
  if (n_next > 0)
    d.notes.push_back("config.json: num_nextn_predict_layers: the head that predicts further tokens is left out");
  d.leave("mtp.*");
  const std::vector<bool> sparse = sparse_layers(d, c.find_count("first_k_dense_replace").value_or(0));
  d.count("leading_dense_block_count", n_leading(sparse));
  require_sparse_behind(d, sparse);
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kGatedFfn, others(sparse));
  d.take(rules::kExperts, sparse);
  d.take(kExaoneBias, sparse);
  d.take(rules::kSharedExperts, sparse);
}

constexpr std::array kCohereNorm = {Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"}};

void cohere2moe(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d, {.scaling = false});
  const int64_t width = c.count("intermediate_size"), n_shared = c.find_count("num_shared_experts").value_or(0);
  if (const auto dense = c.find_count("prefix_dense_intermediate_size")) d.count("feed_forward_length", *dense);
  d.number("logit_scale", c.number("logit_scale"));
  d.count("attention.sliding_window", c.count("sliding_window"));
  d.flags("attention.sliding_window_pattern",
          parts::window_layers(d, [](int64_t layer) { return (layer + 1) % 4 != 0; }));
  d.count("vocab_size", c.count("vocab_size"));
  d.count("expert_feed_forward_length", width);
  d.flag("expert_weights_norm", c.flag("norm_topk_prob", false));
  if (n_shared > 0) {
    c.expect("shared_expert_combination_strategy", {"average"});
    d.count("expert_shared_count", n_shared);
    d.count("expert_shared_feed_forward_length", width * n_shared);
  }
  d.count("rope.dimension_count", c.count("head_dim"));
  d.text("rope.scaling.type", "none");
  c.expect("hidden_act", {"silu"});
  c.expect_flag("attention_bias", false);
  for (const char* key : {"use_gated_activation", "use_parallel_block", "use_parallel_embedding",
                          "use_embedding_sharing", "token_choice_all_experts", "prefix_dense_sliding_window_pattern"})
    c.mark_read(key);
  const std::vector<bool> sparse = sparse_layers(d, c.find_count("first_k_dense_replace").value_or(0));
  d.count("leading_dense_block_count", n_leading(sparse));
  require_sparse_behind(d, sparse);
  d.leave("lm_head.weight");
  d.take(rules::kEnds);
  d.take(kCohereNorm);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn, others(sparse));
  d.take(rules::kExperts, sparse);
  if (n_shared > 0) d.take(rules::kSharedExperts, sparse);
}

constexpr std::array kAfmoe = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    Rule{"model.layers.{}.pre_mlp_layernorm.weight", "blk.{}.ffn_norm.weight"},
    Rule{"model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    Rule{"model.layers.{}.self_attn.gate_proj.weight", "blk.{}.attn_gate.weight"},
};
constexpr std::array kRouterGate = {
    Rule{"model.layers.{}.mlp.router.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
};
constexpr std::array kAfmoeBias = {Rule{"model.layers.{}.mlp.expert_bias", "blk.{}.exp_probs_b.bias"}};
constexpr std::array kHyBias = {Rule{"model.layers.{}.mlp.expert_bias", "blk.{}.exp_probs_b"}};

void afmoe(Draft& d) {
  Config& c = d.config;
  parts::llama_keys(d);
  const int64_t n_shared = c.find_count("num_shared_experts").value_or(0);
  d.count("expert_shared_count", n_shared);
  d.count("expert_feed_forward_length", c.count("moe_intermediate_size"));
  d.count("leading_dense_block_count", c.count("num_dense_layers"));
  if (c.has("route_norm")) d.flag("expert_weights_norm", c.flag("route_norm", true));
  if (const auto scale = c.find_number("route_scale")) d.number("expert_weights_scale", *scale);
  if (const auto window = c.find_count("sliding_window")) d.count("attention.sliding_window", *window);
  if (!c.flag("mup_enabled", false)) {
    throw Error(
        Errc::unsupported,
        "config.json: mup_enabled is false; readers of afmoe files multiply embeddings by the root of hidden_size");
  }
  for (const char* key : {"global_attn_every_n_layers", "num_expert_groups", "num_limited_groups", "load_balance_coeff",
                          "use_grouped_mm"})
    c.mark_read(key);
  constexpr auto usual = [](int64_t layer) { return (layer + 1) % 4 != 0; };
  const std::vector<bool> windows = parts::window_layers(d, usual);
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    if (windows[static_cast<size_t>(layer)] != usual(layer))
      throw Error(
          Errc::unsupported,
          "config.json: layer_types are not three windows and a full layer in turn; afmoe files have no key for them");
  }
  const std::vector<bool> sparse = sparse_layers(d, c.count("num_dense_layers"));
  d.take(rules::kEnds);
  d.take(kAfmoe);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kGatedFfn, others(sparse));
  d.take(kRouterGate, sparse);
  d.take(kAfmoeBias, sparse);
  if (n_shared > 0) d.take(rules::kSharedExperts, sparse);
}

constexpr std::array kSharedMlp = {
    Rule{"model.layers.{}.mlp.shared_mlp.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_mlp.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_mlp.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
};

void hy_v3(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  const int64_t width = c.count("moe_intermediate_size");
  d.count("expert_feed_forward_length", width);
  d.count("expert_shared_feed_forward_length", width * c.find_count("num_shared_experts").value_or(1));
  d.flag("expert_weights_norm", c.flag("route_norm", true));
  d.number("expert_weights_scale", c.find_number("router_scaling_factor").value_or(1.0));
  d.count("expert_gating_func", 2);
  c.expect("hidden_act", {"silu"});
  for (const char* key : {"enable_moe_fp32_combine", "mlp_bias"}) c.mark_read(key);
  const std::vector<bool> sparse = sparse_layers(d, c.find_count("first_k_dense_replace").value_or(1));
  c.mark_read("num_nextn_predict_layers");
  d.leave_layers(d.n_layers, "they predict further tokens");
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kGatedFfn, others(sparse));
  d.take(kRouterGate, sparse);
  d.take(kHyBias, sparse);
  d.take(kSharedMlp, sparse);
}

constexpr std::array kLaguna = {
    Rule{"model.layers.{}.self_attn.g_proj.weight", "blk.{}.attn_gate.weight"},
};
constexpr std::array kLagunaSparse = {
    Rule{"model.layers.{}.mlp.experts.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    Rule{"model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
};

void laguna(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  d.count("vocab_size", c.count("vocab_size"));
  std::vector<int64_t> heads = c.counts("num_attention_heads_per_layer");
  if (heads.empty()) heads.assign(static_cast<size_t>(d.n_layers), d.n_heads);
  if (heads.size() != static_cast<size_t>(d.n_layers))
    throw Error(Errc::bad_file,
                fmt::format("config.json: num_attention_heads_per_layer has {} entries, the model {} layers",
                            heads.size(), d.n_layers));
  d.counts("attention.head_count", heads);
  if (const auto window = c.find_count("sliding_window"); window && *window > 0)
    d.count("attention.sliding_window", *window);
  const std::vector<bool> windows = parts::window_layers(d, [](int64_t layer) { return layer % 4 != 0; });
  d.count("expert_feed_forward_length", c.count("moe_intermediate_size"));
  d.count("expert_shared_feed_forward_length", c.count("shared_expert_intermediate_size"));
  d.flag("expert_weights_norm", true);
  d.number("expert_weights_scale", c.number("moe_routed_scaling_factor"));
  d.count("expert_gating_func", 2);
  const auto turned = [&](std::string_view kind) {
    const Json* params = c.find("rope_parameters");
    const Json* own = params == nullptr ? nullptr : params->find(kind);
    const Json* share = own == nullptr ? nullptr : own->find("partial_rotary_factor");
    return static_cast<int64_t>(
        (share == nullptr ? 1.0 : parts::share(number_of(*share, "partial_rotary_factor"), "partial_rotary_factor")) *
        static_cast<double>(c.count("head_dim")));
  };
  d.count("rope.dimension_count", turned("full_attention"));
  if (std::find(windows.begin(), windows.end(), true) != windows.end())
    d.count("rope.dimension_count_swa", turned("sliding_attention"));
  c.expect("hidden_act", {"silu"});
  for (const char* key :
       {"gating", "gating_types", "moe_apply_router_weight_on_input", "moe_router_logit_softcapping", "attention_bias"})
    c.mark_read(key);
  const std::vector<bool> sparse = sparse_layers(d, 1);
  d.count("leading_dense_block_count", n_leading(sparse));
  require_sparse_behind(d, sparse);
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(kLaguna);
  d.take(rules::kGatedFfn, others(sparse));
  d.take(rules::kExperts, sparse);
  d.take(kLagunaSparse, sparse);
  for (size_t layer = 0; layer < heads.size(); ++layer) {  // a gate for each head, or for each of its elements
    const std::string name = fmt::format("model.layers.{}.self_attn.g_proj.weight", layer);
    const int64_t rows = d.need(name).rows();
    if (rows != heads[layer] && rows != heads[layer] * c.count("head_dim")) {
      throw Error(Errc::bad_file, fmt::format("{} has {} rows; needs {} heads, or {} elements", name, rows,
                                              heads[layer], heads[layer] * c.count("head_dim")));
    }
  }
}

constexpr std::array kMimoSinks = {Rule{"model.layers.{}.self_attn.attention_sink_bias", "blk.{}.attn_sinks.weight"}};

// Its configuration is that of the model's own code. Three layers behind the last predict further tokens.
void mimo2(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  const std::vector<int64_t> kinds = c.counts("hybrid_layer_pattern"), with_experts = c.counts("moe_layer_freq");
  const auto n_layers = static_cast<size_t>(d.n_layers);
  if (kinds.size() != n_layers)
    throw Error(Errc::bad_file, fmt::format("config.json: hybrid_layer_pattern has {} entries, the model {} layers",
                                            kinds.size(), n_layers));
  for (const auto& [own, other] :
       {std::pair{"swa_head_dim", "head_dim"}, std::pair{"swa_num_attention_heads", "num_attention_heads"},
        std::pair{"swa_v_head_dim", "v_head_dim"}}) {
    if (c.count(own) != c.count(other))
      throw Error(Errc::unsupported, fmt::format("config.json: {} is {}, {} is {}; files have one number for both", own,
                                                 c.count(own), other, c.count(other)));
  }
  c.expect("topk_method", {"noaux_tc"});
  std::vector<int64_t> heads, pattern;
  std::vector<bool> windows, sparse;
  for (size_t layer = 0; layer < n_layers; ++layer) {
    windows.push_back(kinds[layer] == 1);
    heads.push_back(windows.back() ? c.count("swa_num_key_value_heads") : d.n_kv_heads);
    sparse.push_back(with_experts.size() == n_layers ? with_experts[layer] != 0 : layer > 0);
  }
  constexpr int64_t kNextLayers = 3;  // of the published models, whose config.json does not say it
  d.count("block_count", d.n_layers + kNextLayers);
  std::vector<int64_t> all_heads = heads, all_kinds = kinds;
  for (int64_t i = 0; i < kNextLayers; ++i) {
    all_heads.push_back(c.count("swa_num_key_value_heads"));
    all_kinds.push_back(1);
  }
  d.count("nextn_predict_layers", kNextLayers);
  d.counts("attention.head_count_kv", all_heads);
  d.count("attention.sliding_window", c.count("sliding_window"));
  d.counts("attention.sliding_window_pattern", all_kinds);
  d.count("attention.value_length", c.count("v_head_dim"));
  d.count("expert_feed_forward_length", c.count("moe_intermediate_size"));
  d.count("rope.dimension_count", static_cast<int64_t>(static_cast<double>(c.count("head_dim")) *
                                                       parts::rotary_share(d, {"partial_rotary_factor"})));
  d.number("attention.layer_norm_rms_epsilon", c.number("layernorm_epsilon"));
  if (const auto scale = c.find_number("attention_value_scale")) d.number("attention.value_scale", *scale);
  for (const char* key :
       {"add_full_attention_sink_bias", "add_swa_attention_sink_bias", "sliding_window_size", "attention_chunk_size",
        "n_shared_experts", "routed_scaling_factor", "norm_topk_prob", "hybrid_block_size"}) {
    c.mark_read(key);
  }
  c.expect("hidden_act", {"silu"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(kMimoSinks, windows);
  d.take(rules::kGatedFfn, others(sparse));
  d.take(rules::kExperts, sparse);
  d.take(kScoreBias, sparse);
  d.leave("model.mtp.*");
}

void dots1(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  d.count("expert_feed_forward_length", c.count("moe_intermediate_size"));
  d.count("leading_dense_block_count", c.count("first_k_dense_replace"));
  d.count("expert_shared_count", c.count("n_shared_experts"));
  d.number("expert_weights_scale", c.number("routed_scaling_factor"));
  d.flag("expert_weights_norm", c.flag("norm_topk_prob", false));
  c.expect("hidden_act", {"silu"});
  for (const char* key :
       {"sliding_window", "use_sliding_window", "layer_types", "topk_method", "moe_layer_freq", "pretraining_tp"})
    c.mark_read(key);
  const std::vector<bool> sparse = sparse_layers(d, c.count("first_k_dense_replace"));
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kGatedFfn, others(sparse));
  d.take(rules::kExperts, sparse);
  d.take(rules::kSharedExperts, sparse);
  d.take(kScoreBias, sparse);
}

}  // namespace

std::vector<Family> expert_families() {
  using enum VocabularyKind;
  return {
      {"gpt-oss", {"GptOssForCausalLM"}, {}, bpe, gpt_oss, {.reads_mxfp4 = true}},
      {"glm4moe", {"Glm4MoeForCausalLM"}, {}, bpe, glm4moe, parts::glm4_vocabulary()},
      {"glm4moe",
       {"SolarOpenForCausalLM"},
       {},
       bpe,
       glm4moe,
       {.special_texts =
            {{"eos", "<|endoftext|>"}, {"eot", "<|endoftext|>"}, {"unk", "<unk>"}, {"bos", "<|startoftext|>"}}}},
      {"ernie4_5-moe",
       {"Ernie4_5_MoeForCausalLM"},
       R"({"tie_word_embeddings":true,"rope_theta":500000.0,"rms_norm_eps":1e-5})",
       pieces_or_bpe,
       ernie4_5_moe,
       {.reads_prefix_space = true}},
      {"minimax-m2", {"MiniMaxM2ForCausalLM"}, {}, bpe, minimax_m2},
      {"llama4", {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"}, {}, bpe, llama4},
      {"exaone-moe", {"ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"}, {}, bpe, exaone_moe},
      {"cohere2moe",
       {"Cohere2MoeForCausalLM"},
       R"({"tie_word_embeddings":true,"layer_norm_eps":1e-5})",
       bpe,
       cohere2moe},
      {"afmoe", {"AfmoeForCausalLM"}, {}, pieces_or_bpe, afmoe, {.reads_prefix_space = true}},
      {"laguna", {"LagunaForCausalLM"}, {}, bpe, laguna, {.habit = TokenHabit::laguna}},
      {"mimo2", {"MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"}, {}, bpe, mimo2},
      {"dots1", {"Dots1ForCausalLM"}, {}, bpe, dots1},
      {"hy_v3", {"HYV3ForCausalLM"}, {}, bpe, hy_v3},
  };
}

}  // namespace assay::converting
