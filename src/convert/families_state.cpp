// Families whose layers keep a state: Mamba and Mamba 2 alone or between attention layers, short convolutions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/families.h"
#include "convert/family_rules.h"

namespace assay::converting {
namespace {

constexpr int64_t kAnyContext = int64_t{1} << 20;  // of models without positions

using Kinds = std::initializer_list<std::string_view>;

// Which layers keep a state, by layer_types; empty where config.json has none.
std::vector<bool> state_layers(Draft& d, Kinds state, Kinds attention) {
  std::vector<bool> layers;
  const std::vector<std::string> types = d.config.texts("layer_types");
  const auto is_one = [](Kinds kinds, const std::string& type) {
    return std::find(kinds.begin(), kinds.end(), type) != kinds.end();
  };
  for (const std::string& type : types) {
    if (!is_one(state, type) && !is_one(attention, type)) {
      throw Error(Errc::unsupported,
                  fmt::format("config.json: layer_types holds {}; known are {} and {}", base::shown(type),
                              fmt::join(state, ", "), fmt::join(attention, ", ")));
    }
    layers.push_back(is_one(state, type));
  }
  if (!types.empty() && types.size() != static_cast<size_t>(d.n_layers)) {
    throw Error(Errc::bad_file,
                fmt::format("config.json: layer_types has {} entries, the model {} layers", types.size(), d.n_layers));
  }
  return layers;
}

std::vector<bool> without(const std::vector<bool>& layers) {
  std::vector<bool> rest = layers;
  rest.flip();
  return rest;
}

// A layer without heads for keys is one that keeps a state.
void kv_heads(Draft& d, const std::vector<bool>& attention) {
  std::vector<int64_t> heads;
  for (const bool is_attention : attention) heads.push_back(is_attention ? d.n_kv_heads : 0);
  d.counts("attention.head_count_kv", heads);
}

void layers_alone(Draft& d) {
  d.n_layers = d.config.count("num_hidden_layers");
  if (d.n_layers == 0 || d.n_layers > 4096)
    throw Error(Errc::bad_file, fmt::format("config.json: num_hidden_layers is {}; needs 1 to 4096", d.n_layers));
}

// Readers take the step of the state as it is.
void require_no_time_limit(Draft& d) {
  const Json* limit = d.config.find("time_step_limit");
  if (limit == nullptr) return;
  const std::vector<Json>* both = limit->array();
  const auto is_infinite = [](const Json& end) {
    return end.text("__float__") == "Infinity" || (end.string() != nullptr && *end.string() == "Infinity");
  };
  if (both != nullptr && both->size() == 2 && both->front().number() != nullptr && both->front().number()->value == 0 &&
      is_infinite(both->back()))
    return;
  throw Error(Errc::unsupported,
              fmt::format("config.json: time_step_limit is {}; {} files have no key for limits other "
                          "than 0 and infinity",
                          limit->shown(), d.architecture()));
}

void ignore(Draft& d, Kinds keys) {
  for (const std::string_view key : keys) d.config.mark_read(key);
}

constexpr std::array<std::string_view, 14> kTraining = {"time_step_min",        "time_step_max",
                                                        "time_step_floor",      "time_step_scale",
                                                        "use_mambapy",          "time_step_init_scheme",
                                                        "use_associative_scan", "chunk_size",
                                                        "mamba_chunk_size",     "rescale_prenorm_residual",
                                                        "residual_in_fp32",     "use_mamba_kernels",
                                                        "num_logits_to_keep",   "mamba_ssm_cache_dtype"};

struct StateSizes {
  int64_t kernel = 0, inner = 0, state = 0, rank = 0, groups = 0;  // groups: of Mamba 2, else 0
};

void state_sizes(Draft& d, const StateSizes& sizes) {
  d.count("ssm.conv_kernel", sizes.kernel);
  d.count("ssm.inner_size", sizes.inner);
  d.count("ssm.state_size", sizes.state);
  d.count("ssm.time_step_rank", sizes.rank);
  if (sizes.groups == 0) return;
  d.count("ssm.group_count", sizes.groups);
  d.n_state_groups = sizes.groups;
}

int64_t expanded(Draft& d, std::string_view key) {
  return whole_of(d.config.number(key) * static_cast<double>(d.config.count("hidden_size")), key);
}

int64_t groups_of(Draft& d, std::string_view key) {
  const int64_t n = d.config.count(key);
  if (n == 0) throw Error(Errc::bad_file, fmt::format("config.json: {} is 0; needs 1 or more", key));
  return n;
}

// transformers' class takes one mean over all groups, the models' own code and all readers one of each.
void note_group_norm(Draft& d, int64_t n_groups) {
  if (n_groups < 2) return;
  d.notes.push_back(
      fmt::format("config.json: {} groups: readers of {} files norm each group of the state by itself, as the "
                  "state-spaces code does; "
                  "Hugging Face's class norms all as one, so that its numbers differ",
                  n_groups, d.architecture()));
}

constexpr std::array kBackboneEnds = {
    Rule{"backbone.embeddings.weight", "token_embd.weight"},
    Rule{"backbone.norm_f.weight", "output_norm.weight"},
    Rule{"lm_head.weight", "output.weight", As::tied},
    Rule{"backbone.layers.{}.norm.weight", "blk.{}.attn_norm.weight"},
};
constexpr std::array kMamba1 = {
    Rule{"backbone.layers.{}.mixer.in_proj.weight", "blk.{}.ssm_in.weight"},
    Rule{"backbone.layers.{}.mixer.conv1d.weight", "blk.{}.ssm_conv1d.weight", As::filters},
    Rule{"backbone.layers.{}.mixer.conv1d.bias", "blk.{}.ssm_conv1d.bias"},
    Rule{"backbone.layers.{}.mixer.x_proj.weight", "blk.{}.ssm_x.weight"},
    Rule{"backbone.layers.{}.mixer.dt_proj.weight", "blk.{}.ssm_dt.weight"},
    Rule{"backbone.layers.{}.mixer.dt_proj.bias", "blk.{}.ssm_dt.bias"},
    Rule{"backbone.layers.{}.mixer.A_log", "blk.{}.ssm_a", As::negative_exp},
    Rule{"backbone.layers.{}.mixer.D", "blk.{}.ssm_d"},
    Rule{"backbone.layers.{}.mixer.out_proj.weight", "blk.{}.ssm_out.weight"},
};
constexpr std::array kMixer2 = {
    Rule{"backbone.layers.{}.mixer.in_proj.weight", "blk.{}.ssm_in.weight"},
    Rule{"backbone.layers.{}.mixer.conv1d.weight", "blk.{}.ssm_conv1d.weight", As::filters},
    Rule{"backbone.layers.{}.mixer.conv1d.bias", "blk.{}.ssm_conv1d.bias"},
    Rule{"backbone.layers.{}.mixer.dt_bias", "blk.{}.ssm_dt.bias"},
    Rule{"backbone.layers.{}.mixer.A_log", "blk.{}.ssm_a", As::negative_exp_column},
    Rule{"backbone.layers.{}.mixer.D", "blk.{}.ssm_d", As::column},
    Rule{"backbone.layers.{}.mixer.norm.weight", "blk.{}.ssm_norm.weight", As::state_groups},
    Rule{"backbone.layers.{}.mixer.out_proj.weight", "blk.{}.ssm_out.weight"},
};
constexpr std::array kMamba2 = {
    Rule{"model.layers.{}.mamba.in_proj.weight", "blk.{}.ssm_in.weight"},
    Rule{"model.layers.{}.mamba.conv1d.weight", "blk.{}.ssm_conv1d.weight", As::filters},
    Rule{"model.layers.{}.mamba.conv1d.bias", "blk.{}.ssm_conv1d.bias"},
    Rule{"model.layers.{}.mamba.dt_bias", "blk.{}.ssm_dt.bias"},
    Rule{"model.layers.{}.mamba.A_log", "blk.{}.ssm_a", As::negative_exp_column},
    Rule{"model.layers.{}.mamba.D", "blk.{}.ssm_d", As::column},
    Rule{"model.layers.{}.mamba.norm.weight", "blk.{}.ssm_norm.weight", As::state_groups, true},
    Rule{"model.layers.{}.mamba.out_proj.weight", "blk.{}.ssm_out.weight"},
};

constexpr std::array kLfm2Ends = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.embedding_norm.weight", "token_embd_norm.weight"},
    Rule{"lm_head.weight", "output.weight", As::tied},
    Rule{"model.layers.{}.operator_norm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight"},
};
constexpr std::array kShortConv = {
    Rule{"model.layers.{}.conv.conv.weight", "blk.{}.shortconv.conv.weight", As::filters},
    Rule{"model.layers.{}.conv.in_proj.weight", "blk.{}.shortconv.in_proj.weight"},
    Rule{"model.layers.{}.conv.out_proj.weight", "blk.{}.shortconv.out_proj.weight"},
};
constexpr std::array kLfm2Attention = {
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"model.layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight"},
    Rule{"model.layers.{}.self_attn.q_layernorm.weight", "blk.{}.attn_q_norm.weight"},
    Rule{"model.layers.{}.self_attn.k_layernorm.weight", "blk.{}.attn_k_norm.weight"},
};
constexpr std::array kLfm2Dense = {
    Rule{"model.layers.{}.feed_forward.w1.weight", "blk.{}.ffn_gate.weight"},
    Rule{"model.layers.{}.feed_forward.w3.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.feed_forward.w2.weight", "blk.{}.ffn_down.weight"},
};
constexpr std::array kLfm2Experts = {
    Rule{"model.layers.{}.feed_forward.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.feed_forward.experts.{x}.w1.weight", "blk.{}.ffn_gate_exps.weight"},
    Rule{"model.layers.{}.feed_forward.experts.{x}.w3.weight", "blk.{}.ffn_up_exps.weight"},
    Rule{"model.layers.{}.feed_forward.experts.{x}.w2.weight", "blk.{}.ffn_down_exps.weight"},
};
constexpr std::array kLfm2Bias = {Rule{"model.layers.{}.feed_forward.expert_bias", "blk.{}.exp_probs_b.bias"}};

// What both kinds share; whether a layer is a convolution.
std::vector<bool> lfm2_body(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  if (c.has("tie_embedding")) d.is_tied = c.flag("tie_embedding", true);
  parts::rope(d);
  d.number("attention.layer_norm_rms_epsilon", c.number("norm_eps"));
  d.count("vocab_size", c.count("vocab_size"));
  d.count("shortconv.l_cache", c.count("conv_L_cache"));
  c.expect_flag("conv_bias", false);
  std::vector<bool> convolutions = state_layers(d, {"conv"}, {"full_attention"});
  const std::vector<int64_t> named = c.counts("full_attn_idxs");
  if (convolutions.empty()) {
    convolutions.assign(static_cast<size_t>(d.n_layers), !named.empty());
    for (const int64_t layer : named) {
      if (layer >= d.n_layers)
        throw Error(Errc::bad_file,
                    fmt::format("config.json: full_attn_idxs holds {}; there are {} layers", layer, d.n_layers));
      convolutions[static_cast<size_t>(layer)] = false;
    }
  }
  kv_heads(d, without(convolutions));
  ignore(d, {"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu",
             "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "theta"});
  d.take(kLfm2Ends);
  d.take(kShortConv, convolutions);
  d.take(kLfm2Attention, without(convolutions));
  return convolutions;
}

// The width is that of the class: two thirds of what config.json says, rounded up.
int64_t lfm2_width(Draft& d) {
  Config& c = d.config;
  int64_t width = c.has("block_ff_dim") ? c.count("block_ff_dim") : c.count("intermediate_size");
  const std::optional<double> factor = c.find_number("block_ffn_dim_multiplier");
  const int64_t multiple = c.count("block_multiple_of");
  if (!c.flag("block_auto_adjust_ff_dim", true)) return width;
  width = static_cast<int64_t>(static_cast<double>(2 * width) / 3);
  if (!factor) return width;
  if (multiple == 0) throw Error(Errc::bad_file, "config.json: block_multiple_of is 0; needs 1 or more");
  width = whole_of(*factor * static_cast<double>(width), "block_ffn_dim_multiplier");
  return (width + multiple - 1) / multiple * multiple;
}

void lfm2(Draft& d) {
  d.config.expect_flag("block_use_swiglu", true);
  lfm2_body(d);
  d.count("feed_forward_length", lfm2_width(d));
  d.take(kLfm2Dense);
}

void lfm2moe(Draft& d) {
  Config& c = d.config;
  lfm2_body(d);
  const int64_t n_dense = c.count("num_dense_layers");
  d.count("expert_feed_forward_length", c.count("moe_intermediate_size"));
  d.count("leading_dense_block_count", n_dense);
  d.count("expert_gating_func", 2);
  if (const double scale = c.number("routed_scaling_factor"); scale != 1) d.number("expert_weights_scale", scale);
  if (!c.flag("norm_topk_prob", true)) d.flag("expert_weights_norm", false);
  std::vector<bool> sparse;
  for (int64_t layer = 0; layer < d.n_layers; ++layer) sparse.push_back(layer >= n_dense);
  d.take(kLfm2Dense, without(sparse));
  d.take(kLfm2Experts, sparse);
  if (c.flag("use_expert_bias", true)) d.take(kLfm2Bias, sparse);
}

// Where a model has attention alone, its file is one of granite or granitemoe.
constexpr std::array kHybridExperts = {
    Rule{"model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_gate_exps.weight", As::gate},
    Rule{"model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_up_exps.weight", As::up},
    Rule{"model.layers.{}.block_sparse_moe.output_linear.weight", "blk.{}.ffn_down_exps.weight"},
    Rule{"model.layers.{}.block_sparse_moe.router.layer.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_gate_shexp.weight", As::gate},
    Rule{"model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_up_shexp.weight", As::up},
    Rule{"model.layers.{}.shared_mlp.output_linear.weight", "blk.{}.ffn_down_shexp.weight"},
};
constexpr std::array kHybridDense = {
    Rule{"model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_gate.weight", As::gate},
    Rule{"model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_up.weight", As::up},
    Rule{"model.layers.{}.shared_mlp.output_linear.weight", "blk.{}.ffn_down.weight"},
};

// Whether attention turns queries and keys; a file of granite or granitemoe cannot say that it does not.
bool granite_turns(Draft& d, bool is_hybrid) {
  d.config.expect("position_embedding_type", {"rope", "nope"});
  const bool turns = d.config.text("position_embedding_type") == "rope";
  if (!turns && !is_hybrid) {
    throw Error(Errc::unsupported, fmt::format("config.json: no layer has a state and position_embedding_type is not "
                                               "rope; {} files have no key for attention without rotation",
                                               d.architecture()));
  }
  return turns;
}

void granitehybrid_state(Draft& d) {
  Config& c = d.config;
  const int64_t groups = groups_of(d, "mamba_n_groups");
  state_sizes(d, {c.count("mamba_d_conv"), expanded(d, "mamba_expand"), c.count("mamba_d_state"),
                  c.count("mamba_n_heads"), groups});
  c.expect_flag("mamba_conv_bias", true);
  c.expect_flag("mamba_proj_bias", false);
  require_no_time_limit(d);
  note_group_norm(d, groups);
}

void granitehybrid(Draft& d) {
  Config& c = d.config;
  d.n_layers = c.count("num_hidden_layers");
  std::vector<bool> states = state_layers(d, {"mamba", "linear_attention"}, {"attention", "full_attention"});
  if (states.empty()) states.assign(static_cast<size_t>(std::min<int64_t>(d.n_layers, 4096)), true);
  const bool is_hybrid = std::find(states.begin(), states.end(), true) != states.end(),
             has_experts = c.find_count("num_local_experts").value_or(0) > 0;
  if (!is_hybrid) d.set_architecture(has_experts ? "granitemoe" : "granite");
  parts::granite_keys(d);
  const int64_t n_shared = c.count("shared_intermediate_size");
  d.count("expert_shared_feed_forward_length", n_shared);
  if (!has_experts) d.count("feed_forward_length", n_shared);
  const bool turns = granite_turns(d, is_hybrid);
  d.flag("rope.scaling.finetuned", turns);
  if (!turns) d.count("context_length", kAnyContext);
  for (const std::string_view key : kTraining) d.config.mark_read(key);
  ignore(d, {"mamba_d_head", "mamba_dt_rank", "normalization_function", "rms_norm_before_gate"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  kv_heads(d, without(states));
  granitehybrid_state(d);
  d.take(kMamba2, states);
  d.take(rules::kAttentionPairs, without(states));
  const auto first = std::find(states.begin(), states.end(), false);
  if (first != states.end())
    parts::check_bias(d, "attention_bias", fmt::format("blk.{}.attn_q.bias", first - states.begin()));
  if (has_experts) return d.take(kHybridExperts);
  d.take(kHybridDense);
}

void alone_keys(Draft& d) {
  Config& c = d.config;
  layers_alone(d);
  d.is_tied = c.flag("tie_word_embeddings", false);
  d.count("context_length", kAnyContext);
  d.count("embedding_length", c.count("hidden_size"));
  d.count("feed_forward_length", 0);
  d.count("attention.head_count", 0);
  d.count("block_count", d.n_layers);
  d.number("attention.layer_norm_rms_epsilon", c.number("layer_norm_epsilon"));
  c.expect("hidden_act", {"silu"});
  c.expect_flag("use_bias", false);
  c.expect_flag("use_conv_bias", true);
  for (const std::string_view key : kTraining) d.config.mark_read(key);
  ignore(d, {"vocab_size", "intermediate_size", "fused_add_norm", "norm_before_gate", "rms_norm", "d_inner", "d_model",
             "n_layer", "ssm_cfg", "pad_vocab_size_multiple"});
}

// "auto" is a 16th of the width, rounded up.
int64_t step_rank(Draft& d, std::string_view key) {
  const Json* found = d.config.find(key);
  if (found == nullptr || (found->string() != nullptr && *found->string() == "auto"))
    return (d.config.count("hidden_size") + 15) / 16;
  return d.config.count(key);
}

void mamba(Draft& d) {
  alone_keys(d);
  state_sizes(d, {d.config.count("conv_kernel"), expanded(d, "expand"), d.config.count("state_size"),
                  step_rank(d, "time_step_rank"), 0});
  d.flag("ssm.dt_b_c_rms", false);
  d.take(kBackboneEnds);
  d.take(kMamba1);
}

void mamba2(Draft& d) {
  Config& c = d.config;
  alone_keys(d);
  const int64_t inner = expanded(d, "expand"), heads = c.count("num_heads"), width = c.count("head_dim"),
                groups = groups_of(d, "n_groups");
  if (heads * width != inner) {
    throw Error(Errc::bad_file,
                fmt::format("config.json: num_heads {} times head_dim {} is not expand times hidden_size, {}", heads,
                            width, inner));
  }
  state_sizes(d, {c.count("conv_kernel"), inner, c.count("state_size"), heads, groups});
  require_no_time_limit(d);
  note_group_norm(d, groups);
  c.mark_read("time_step_rank");
  d.take(kBackboneEnds);
  d.take(kMixer2);
}

constexpr std::string_view kLfm2Defaults =
    R"({"vocab_size":65536,"hidden_size":2560,"intermediate_size":12288,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
        "max_position_embeddings":128000,"norm_eps":1e-5,"rope_theta":1000000.0,"conv_L_cache":3,"block_multiple_of":256,
        "block_ffn_dim_multiplier":1.0,"tie_word_embeddings":true})";
constexpr std::string_view kLfm2MoeDefaults =
    R"({"vocab_size":65536,"hidden_size":2048,"intermediate_size":7168,"moe_intermediate_size":1792,"num_hidden_layers":32,"num_attention_heads":32,
        "num_key_value_heads":8,"max_position_embeddings":128000,"norm_eps":1e-5,"rope_theta":1000000.0,"conv_L_cache":3,"num_dense_layers":2,
        "num_experts":32,"num_experts_per_tok":4,"routed_scaling_factor":1.0,"tie_word_embeddings":true})";
constexpr std::string_view kGraniteHybridDefaults =
    R"({"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-6,"rope_theta":10000.0,"embedding_multiplier":1.0,"logits_scaling":1.0,
        "residual_multiplier":1.0,"attention_multiplier":1.0,"num_local_experts":8,"num_experts_per_tok":2,"shared_intermediate_size":1024,
        "mamba_n_heads":128,"mamba_n_groups":1,"mamba_d_state":256,"mamba_d_conv":4,"mamba_expand":2})";
constexpr std::string_view kMambaDefaults =
    R"({"hidden_size":768,"state_size":16,"num_hidden_layers":32,"layer_norm_epsilon":1e-5,"expand":2,"conv_kernel":4,"tie_word_embeddings":true})";
constexpr std::string_view kMamba2Defaults =
    R"({"num_heads":128,"head_dim":64,"hidden_size":4096,"state_size":128,"num_hidden_layers":64,"layer_norm_epsilon":1e-5,"expand":2,"conv_kernel":4,
        "n_groups":8})";

}  // namespace

std::vector<Family> state_families() {
  using enum VocabularyKind;
  return {
      {"lfm2", {"Lfm2ForCausalLM"}, kLfm2Defaults, bpe, lfm2},
      {"lfm2moe", {"Lfm2MoeForCausalLM"}, kLfm2MoeDefaults, bpe, lfm2moe},
      {"granitehybrid",
       {"GraniteMoeHybridForCausalLM"},
       kGraniteHybridDefaults,
       pieces_or_bpe,
       granitehybrid,
       {.pre_of = "granite"}},
      {"mamba", {"MambaForCausalLM"}, kMambaDefaults, pieces_or_bpe, mamba},
      {"mamba2", {"Mamba2ForCausalLM"}, kMamba2Defaults, pieces_or_bpe, mamba2, {.prefix = "model."}},
  };
}

}  // namespace assay::converting
