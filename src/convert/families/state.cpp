// Families whose layers keep a state: Mamba and Mamba 2 alone or between attention layers, short convolutions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

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
  if (is_hybrid) granitehybrid_state(d);
  ignore(d, {"mamba_d_conv", "mamba_expand", "mamba_d_state", "mamba_n_heads", "mamba_n_groups", "mamba_conv_bias",
             "mamba_proj_bias", "time_step_limit"});
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
  c.mark_read("time_step_rank");
  d.take(kBackboneEnds);
  d.take(kMixer2);
}

// One block a layer: Mamba 2, attention, a feed-forward layer or experts.
enum class Block { state, attention, dense, experts };

Block block_of(std::string_view kind) {
  if (kind == "M" || kind == "mamba" || kind == "linear_attention") return Block::state;
  if (kind == "*" || kind == "attention" || kind == "full_attention") return Block::attention;
  if (kind == "-" || kind == "mlp") return Block::dense;
  if (kind == "E" || kind == "moe") return Block::experts;
  throw Error(Errc::unsupported,
              fmt::format("config.json: a layer is of the kind {}; known are M, *, - and E of hybrid_override_pattern, "
                          "and mamba, linear_attention, attention, full_attention, mlp and moe of layers_block_type",
                          base::shown(kind)));
}

std::vector<Block> nemotron_blocks(Draft& d) {
  std::vector<Block> blocks;
  const std::string pattern = d.config.text("hybrid_override_pattern");
  for (const char one : pattern) blocks.push_back(block_of(std::string_view(&one, 1)));
  for (const char* key : {"layers_block_type", "layer_types"}) {
    const std::vector<std::string> kinds = d.config.texts(key);
    if (!blocks.empty()) continue;
    for (const std::string& kind : kinds) blocks.push_back(block_of(kind));
  }
  d.n_layers = static_cast<int64_t>(blocks.size());
  if (blocks.empty() || blocks.size() > 4096) {
    throw Error(Errc::bad_file, fmt::format("config.json: hybrid_override_pattern or layers_block_type name {} layers; "
                                            "needs 1 to 4096",
                                            blocks.size()));
  }
  return blocks;
}

std::vector<bool> layers_of(const std::vector<Block>& blocks, Block kind) {
  std::vector<bool> layers;
  for (const Block block : blocks) layers.push_back(block == kind);
  return layers;
}

// Nothing turns: rows are re-ordered because the other converters do it.
constexpr std::array kNemotronAttention = {
    Rule{"backbone.layers.{}.mixer.q_proj.weight", "blk.{}.attn_q.weight", As::rope_q},
    Rule{"backbone.layers.{}.mixer.k_proj.weight", "blk.{}.attn_k.weight", As::rope_k},
    Rule{"backbone.layers.{}.mixer.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"backbone.layers.{}.mixer.o_proj.weight", "blk.{}.attn_output.weight"},
};
constexpr std::array kNemotronDense = {
    Rule{"backbone.layers.{}.mixer.up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"backbone.layers.{}.mixer.down_proj.weight", "blk.{}.ffn_down.weight"},
};
constexpr std::array kNemotronExperts = {
    Rule{"backbone.layers.{}.mixer.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"backbone.layers.{}.mixer.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    Rule{"backbone.layers.{}.mixer.experts.{x}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    Rule{"backbone.layers.{}.mixer.experts.{x}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
    Rule{"backbone.layers.{}.mixer.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    Rule{"backbone.layers.{}.mixer.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
};
constexpr std::array kNemotronLatent = {
    Rule{"backbone.layers.{}.mixer.fc1_latent_proj.weight", "blk.{}.ffn_latent_down.weight"},
    Rule{"backbone.layers.{}.mixer.fc2_latent_proj.weight", "blk.{}.ffn_latent_up.weight"},
};

void nemotron_expert_keys(Draft& d) {
  Config& c = d.config;
  parts::n_experts(d, "n_routed_experts");
  d.count("expert_used_count", c.count("num_experts_per_tok"));
  d.count("expert_group_count", c.count("n_group"));
  d.count("expert_group_used_count", c.count("topk_group"));
  d.count("expert_feed_forward_length", c.count("moe_intermediate_size"));
  d.count("expert_shared_feed_forward_length", c.count("moe_shared_expert_intermediate_size"));
  d.count("expert_shared_count", c.count("n_shared_experts"));
  d.flag("expert_weights_norm", c.flag("norm_topk_prob", true));
  d.number("expert_weights_scale", c.number("routed_scaling_factor"));
  if (const auto latent = c.find_count("moe_latent_size")) d.count("moe_latent_size", *latent);
}

void nemotron_keys(Draft& d, const std::vector<Block>& blocks) {
  Config& c = d.config;
  d.n_heads = c.count("num_attention_heads");
  d.n_kv_heads = c.find_count("num_key_value_heads").value_or(d.n_heads);
  if (d.n_heads == 0 || d.n_heads > 65536 || d.n_kv_heads == 0)
    throw Error(Errc::bad_file,
                fmt::format("config.json: {} heads, {} for keys; needs 1 to 65536", d.n_heads, d.n_kv_heads));
  // transformers' class ties nothing: a head that is there is the model's, whatever the key says.
  d.is_tied = c.flag("tie_word_embeddings", false) && !d.has("lm_head.weight");
  std::vector<int64_t> widths;
  for (const Block block : blocks) {
    widths.push_back(block == Block::dense     ? c.count("intermediate_size")
                     : block == Block::experts ? c.count("moe_intermediate_size")
                                               : 0);
  }
  d.count("block_count", d.n_layers);
  d.count("context_length", kAnyContext);
  d.count("embedding_length", c.count("hidden_size"));
  d.counts("feed_forward_length", widths);
  d.count("attention.head_count", d.n_heads);
  kv_heads(d, layers_of(blocks, Block::attention));
  d.number("attention.layer_norm_epsilon", c.number("layer_norm_epsilon"));
  d.count("vocab_size", c.count("vocab_size"));
  d.count("rope.dimension_count", c.count("hidden_size") / d.n_heads);
  d.flag("rope.scaling.finetuned", false);
  const int64_t dim = c.has("head_dim") ? c.count("head_dim") : c.count("attention_head_dim");
  d.count("attention.key_length", dim);
  d.count("attention.value_length", dim);
  const int64_t heads = c.count("mamba_num_heads");
  state_sizes(d, {c.count("conv_kernel"), heads * c.count("mamba_head_dim"), c.count("ssm_state_size"), heads,
                  groups_of(d, "n_groups")});
}

void nemotron_h(Draft& d) {
  Config& c = d.config;
  const std::vector<Block> blocks = nemotron_blocks(d);
  const bool has_experts = std::find(blocks.begin(), blocks.end(), Block::experts) != blocks.end();
  if (has_experts) d.set_architecture("nemotron_h_moe");
  nemotron_keys(d, blocks);
  if (has_experts) nemotron_expert_keys(d);
  c.expect("mlp_hidden_act", {"relu2"});
  c.expect("mamba_hidden_act", {"silu"});
  for (const char* bias : {"attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"}) c.expect_flag(bias, false);
  c.expect_flag("use_conv_bias", true);
  require_no_time_limit(d);
  if (c.has("sliding_window")) parts::note_window(d, "sliding_window");
  for (const std::string_view key : kTraining) c.mark_read(key);
  ignore(d, {"num_hidden_layers",
             "max_position_embeddings",
             "expand",
             "intermediate_size",
             "moe_intermediate_size",
             "moe_shared_expert_overlap",
             "moe_shared_expert_intermediate_size",
             "n_routed_experts",
             "n_shared_experts",
             "num_experts_per_tok",
             "n_group",
             "topk_group",
             "norm_topk_prob",
             "routed_scaling_factor",
             "moe_latent_size",
             "num_nextn_predict_layers",
             "mtp_layers_block_type",
             "mtp_hybrid_override_pattern",
             "rms_norm_eps",
             "norm_eps",
             "attention_head_dim",
             "num_query_groups",
             "partial_rotary_factor"});
  d.take(kBackboneEnds);
  d.take(kMixer2, layers_of(blocks, Block::state));
  d.take(kNemotronAttention, layers_of(blocks, Block::attention));
  d.take(kNemotronDense, layers_of(blocks, Block::dense));
  if (has_experts) d.take(kNemotronExperts, layers_of(blocks, Block::experts));
  if (has_experts && c.has("moe_latent_size")) d.take(kNemotronLatent, layers_of(blocks, Block::experts));
  if (c.find_count("num_nextn_predict_layers").value_or(0) > 0)
    d.notes.push_back("config.json: num_nextn_predict_layers: the head that predicts further tokens is left out");
  d.leave("mtp.*");
}

constexpr std::array kFalconH1 = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.final_layernorm.weight", "output_norm.weight"},
    Rule{"lm_head.weight", "output.weight", As::tied},
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.pre_ff_layernorm.weight", "blk.{}.ffn_norm"},
    Rule{"model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    Rule{"model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
};

// Multipliers of a key, 1 where there are none.
std::vector<float> multipliers(Draft& d, std::string_view key, size_t n) {
  std::vector<float> all(n, 1.0f);
  const Json* found = d.config.find(key);
  if (found == nullptr) return all;
  if (found->array() == nullptr || found->array()->size() != n)
    throw Error(Errc::bad_file,
                fmt::format("config.json: {} is {}; needs an array of {} numbers", key, found->shown(), n));
  for (size_t i = 0; i < n; ++i) all[i] = static_cast<float>(number_of((*found->array())[i], key));
  return all;
}

// The class multiplies what goes into and comes out of its parts; readers find that in the weights.
void fold_multipliers(Draft& d, int64_t inner, int64_t of_groups) {
  const auto number = [&](std::string_view key) { return static_cast<float>(d.config.find_number(key).value_or(1)); };
  const std::vector<float> mlp = multipliers(d, "mlp_multipliers", 2), ssm = multipliers(d, "ssm_multipliers", 5);
  const float attention_in = number("attention_in_multiplier"), ssm_in = number("ssm_in_multiplier"),
              key = number("key_multiplier"), attention_out = number("attention_out_multiplier"),
              ssm_out = number("ssm_out_multiplier"), head = number("lm_head_multiplier"),
              embedding = number("embedding_multiplier");
  if (d.is_tied && head != embedding) {  // one matrix, two multipliers
    const StoredTensor& t = d.need("model.embed_tokens.weight");
    d.add("output.weight", t.shape, {{.tensor = &t, .n_rows = t.rows()}});
  }
  for (Output& output : d.outputs) {
    const auto whole = [&](std::vector<float> values) { output.factors = {{output.rows, std::move(values)}}; };
    const std::string_view name = output.name;
    if (name == "token_embd.weight") whole({embedding});
    if (name == "output.weight") whole({head});
    if (name.ends_with(".ffn_gate.weight")) whole({mlp[0]});
    if (name.ends_with(".ffn_down.weight")) whole({mlp[1]});
    if (name.ends_with(".attn_q.weight") || name.ends_with(".attn_v.weight")) whole({attention_in});
    if (name.ends_with(".attn_k.weight")) whole({key, attention_in});
    if (name.ends_with(".attn_output.weight")) whole({attention_out});
    if (name.ends_with(".ssm_out.weight")) whole({ssm_out});
    if (!name.ends_with(".ssm_in.weight")) continue;
    const std::array ends = {inner, 2 * inner, 2 * inner + of_groups, 2 * inner + 2 * of_groups, output.rows};
    for (size_t i = 0; i < ends.size(); ++i) output.factors.push_back({ends[i], {ssm_in, ssm[i]}});
  }
}

void falcon_h1(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::derive_head_dim(d);
  parts::rope(d);
  d.count("vocab_size", c.count("vocab_size"));
  const int64_t inner = c.has("mamba_d_ssm") ? c.count("mamba_d_ssm") : expanded(d, "mamba_expand"),
                groups = groups_of(d, "mamba_n_groups"), state = c.count("mamba_d_state");
  state_sizes(d, {c.count("mamba_d_conv"), inner, state, c.count("mamba_n_heads"), groups});
  c.expect("hidden_act", {"silu"});
  c.expect_flag("mamba_conv_bias", true);
  for (const char* bias : {"attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"})
    c.expect_flag(bias, false);
  const bool norms = c.flag("mamba_rms_norm", false);
  if (norms) c.expect_flag("mamba_norm_before_gate", false);
  require_no_time_limit(d);
  for (const std::string_view key : kTraining) c.mark_read(key);
  ignore(d, {"mamba_d_head", "mamba_expand", "mamba_norm_before_gate", "mamba_use_mlp", "layer_types",
             "layers_block_type", "mlp_expansion_factor", "time_step_rank"});
  d.take(kFalconH1);
  d.take(kMamba2);
  const bool found = std::any_of(d.outputs.begin(), d.outputs.end(),
                                 [](const Output& o) { return o.name == "blk.0.ssm_norm.weight"; });
  if (found != norms) {
    throw Error(Errc::bad_file,
                fmt::format("config.json: mamba_rms_norm is {}, but the folder has {} norm of the state", norms,
                            found ? "a" : "no"));
  }
  fold_multipliers(d, inner, groups * state);
}

constexpr std::array kJamba = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.final_layernorm.weight", "output_norm.weight"},
    Rule{"lm_head.weight", "output.weight", As::tied},
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.pre_ff_layernorm.weight", "blk.{}.ffn_norm.weight"},
};
constexpr std::array kJambaState = {
    Rule{"model.layers.{}.mamba.in_proj.weight", "blk.{}.ssm_in.weight"},
    Rule{"model.layers.{}.mamba.conv1d.weight", "blk.{}.ssm_conv1d.weight", As::filters},
    Rule{"model.layers.{}.mamba.conv1d.bias", "blk.{}.ssm_conv1d.bias"},
    Rule{"model.layers.{}.mamba.x_proj.weight", "blk.{}.ssm_x.weight"},
    Rule{"model.layers.{}.mamba.dt_layernorm.weight", "blk.{}.ssm_dt_norm.weight"},
    Rule{"model.layers.{}.mamba.dt_proj.weight", "blk.{}.ssm_dt.weight"},
    Rule{"model.layers.{}.mamba.dt_proj.bias", "blk.{}.ssm_dt.bias"},
    Rule{"model.layers.{}.mamba.b_layernorm.weight", "blk.{}.ssm_b_norm.weight"},
    Rule{"model.layers.{}.mamba.c_layernorm.weight", "blk.{}.ssm_c_norm.weight"},
    Rule{"model.layers.{}.mamba.A_log", "blk.{}.ssm_a", As::negative_exp},
    Rule{"model.layers.{}.mamba.D", "blk.{}.ssm_d"},
    Rule{"model.layers.{}.mamba.out_proj.weight", "blk.{}.ssm_out.weight"},
};
constexpr std::array kNoRotation = {
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
};
constexpr std::array kJambaDense = {
    Rule{"model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    Rule{"model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight"},
};
constexpr std::array kJambaExperts = {
    Rule{"model.layers.{}.feed_forward.router.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.feed_forward.experts.{x}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    Rule{"model.layers.{}.feed_forward.experts.{x}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    Rule{"model.layers.{}.feed_forward.experts.{x}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
};

// Layers offset, offset + period, ...
std::vector<bool> every(Draft& d, std::string_view period_key, std::string_view offset_key) {
  const int64_t period = d.config.count(period_key), offset = d.config.count(offset_key);
  if (offset >= period) {
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}, {} is {}; the offset needs to be below the period",
                                            period_key, period, offset_key, offset));
  }
  std::vector<bool> layers;
  for (int64_t layer = 0; layer < d.n_layers; ++layer) layers.push_back(layer % period == offset);
  return layers;
}

void jamba(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  const std::vector<bool> attention = every(d, "attn_layer_period", "attn_layer_offset");
  std::vector<bool> sparse = every(d, "expert_layer_period", "expert_layer_offset");
  if (d.n_experts < 2) sparse.assign(sparse.size(), false);
  kv_heads(d, attention);
  state_sizes(d, {c.count("mamba_d_conv"), expanded(d, "mamba_expand"), c.count("mamba_d_state"),
                  step_rank(d, "mamba_dt_rank"), 0});
  c.expect("hidden_act", {"silu"});
  c.expect_flag("mamba_conv_bias", true);
  c.expect_flag("mamba_proj_bias", false);
  for (const std::string_view key : kTraining) c.mark_read(key);
  ignore(d, {"layers_block_type", "layer_types", "sliding_window", "mamba_inner_layernorms",
             "calc_logits_for_entire_prompt"});
  d.take(kJamba);
  d.take(kJambaState, without(attention));
  d.take(kNoRotation, attention);
  d.take(kJambaDense, without(sparse));
  d.take(kJambaExperts, sparse);
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
constexpr std::string_view kNemotronHDefaults =
    R"({"vocab_size":131072,"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"intermediate_size":21504,
        "mlp_hidden_act":"relu2","ssm_state_size":128,"mamba_num_heads":128,"mamba_head_dim":64,"n_groups":8,"conv_kernel":4,"n_routed_experts":8,
        "n_shared_experts":1,"moe_intermediate_size":7688,"moe_shared_expert_intermediate_size":7688,"num_experts_per_tok":2,
        "routed_scaling_factor":1.0,"n_group":1,"topk_group":1,"layer_norm_epsilon":1e-5})";
constexpr std::string_view kFalconH1Defaults =
    R"({"vocab_size":128000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
        "rms_norm_eps":1e-5,"max_position_embeddings":8192,"rope_theta":10000.0,"mamba_n_heads":128,"mamba_n_groups":1,"mamba_d_state":256,
        "mamba_d_conv":4,"mamba_expand":2})";
constexpr std::string_view kJambaDefaults =
    R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"rms_norm_eps":1e-6,
        "max_position_embeddings":262144,"num_experts_per_tok":2,"num_experts":16,"expert_layer_period":2,"expert_layer_offset":1,
        "attn_layer_period":8,"attn_layer_offset":4,"mamba_d_state":16,"mamba_d_conv":4,"mamba_expand":2})";

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
      {"nemotron_h", {"NemotronHForCausalLM"}, kNemotronHDefaults, bpe, nemotron_h},
      {"falcon-h1", {"FalconH1ForCausalLM"}, kFalconH1Defaults, bpe, falcon_h1},
      {"jamba", {"JambaForCausalLM"}, kJambaDefaults, pieces_or_bpe, jamba},
  };
}

}  // namespace assay::converting
