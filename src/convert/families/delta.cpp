// Families whose layers keep a state by the delta rule (Qwen3-Next, Qwen3.5, Kimi Linear), and Gemma 3n. Source of what
// the folders hold: Hugging Face transformers 5, modeling_{qwen3_next,qwen3_5,qwen3_5_moe,kimi_linear,gemma3n}.py.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {
namespace {

constexpr int64_t kDeltaHeadsMax = 4096;

constexpr std::array kDeltaEnds = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.norm.weight", "output_norm.weight", As::plus_one},
    Rule{"lm_head.weight", "output.weight", As::tied},
};
constexpr std::array kDeltaNorms = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", As::plus_one},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", As::plus_one},
};
constexpr std::array kDeltaHeadNorms = {
    Rule{"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", As::plus_one},
    Rule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", As::plus_one},
};
constexpr std::array kDeltaNet = {
    // of Qwen3-Next: value heads stay where they are
    Rule{"model.layers.{}.linear_attn.A_log", "blk.{}.ssm_a", As::negative_exp},
    Rule{"model.layers.{}.linear_attn.conv1d.weight", "blk.{}.ssm_conv1d.weight", As::filters},
    Rule{"model.layers.{}.linear_attn.dt_bias", "blk.{}.ssm_dt.bias"},
    Rule{"model.layers.{}.linear_attn.in_proj_ba.weight", "blk.{}.ssm_ba.weight"},
    Rule{"model.layers.{}.linear_attn.norm.weight", "blk.{}.ssm_norm.weight"},
    Rule{"model.layers.{}.linear_attn.out_proj.weight", "blk.{}.ssm_out.weight"},
};
constexpr std::array kFusedDeltaExperts = {
    // as the published Qwen3.5 has them
    Rule{"model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", As::gate},
    Rule{"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight", As::up},
    Rule{"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight"},
};

// Heads of a layer by the delta rule: n_values / n_keys value heads stand behind each key head.
struct DeltaHeads {
  int64_t n_keys = 0, n_values = 0, key_dim = 0, value_dim = 0;
  int64_t n_each() const noexcept { return n_values / n_keys; }
};

DeltaHeads delta_heads(Draft& d) {
  Config& c = d.config;
  const DeltaHeads heads{c.count("linear_num_key_heads"), c.count("linear_num_value_heads"),
                         c.count("linear_key_head_dim"), c.count("linear_value_head_dim")};
  if (heads.n_keys == 0 || heads.n_values > kDeltaHeadsMax || heads.n_values == 0 ||
      heads.n_values % heads.n_keys != 0) {
    throw Error(Errc::bad_file, fmt::format("config.json: linear_num_value_heads is {}, linear_num_key_heads {}; needs "
                                            "a multiple of it, at most {}",
                                            heads.n_values, heads.n_keys, kDeltaHeadsMax));
  }
  for (const int64_t dim : {heads.key_dim, heads.value_dim}) {
    if (dim == 0 || dim > 65536)
      throw Error(
          Errc::bad_file,
          fmt::format("config.json: linear_key_head_dim or linear_value_head_dim is {}; needs 1 to 65536", dim));
  }
  return heads;
}

// Which layers keep a state: layer_types, else all but every full_attention_interval-th.
std::vector<bool> state_layers(Draft& d, int64_t interval) {
  const std::vector<std::string> types = d.config.texts("layer_types");
  if (!types.empty() && types.size() != static_cast<size_t>(d.n_layers))
    throw Error(Errc::bad_file,
                fmt::format("config.json: layer_types has {} entries, the model {} layers", types.size(), d.n_layers));
  std::vector<bool> states;
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    if (types.empty()) {
      states.push_back((layer + 1) % interval != 0);
      continue;
    }
    const std::string& type = types[static_cast<size_t>(layer)];
    if (type != "linear_attention" && type != "full_attention")
      throw Error(Errc::unsupported,
                  fmt::format("config.json: layer_types holds {}; known are linear_attention and full_attention",
                              base::shown(type)));
    states.push_back(type == "linear_attention");
  }
  return states;
}

std::vector<bool> inverted(std::vector<bool> layers) {
  layers.flip();
  return layers;
}

std::vector<bool> delta_keys(Draft& d, const DeltaHeads& heads) {
  Config& c = d.config;
  parts::sizes(d, {.has_ffn_width = false});
  if (const auto width = c.find_count("intermediate_size")) d.count("feed_forward_length", *width);
  parts::key_lengths(d);
  parts::rope(d);
  d.count("ssm.conv_kernel", c.count("linear_conv_kernel_dim"));
  d.count("ssm.state_size", heads.key_dim);
  d.count("ssm.group_count", heads.n_keys);
  d.count("ssm.time_step_rank", heads.n_values);
  d.count("ssm.inner_size", heads.value_dim * heads.n_values);
  const int64_t interval = c.find_count("full_attention_interval").value_or(4);
  if (interval == 0) throw Error(Errc::bad_file, "config.json: full_attention_interval is 0; needs 1 or more");
  std::vector<bool> states = state_layers(d, interval);
  d.flags("attention.recurrent_layers", states);
  d.count("full_attention_interval", interval);
  d.count("rope.dimension_count", static_cast<int64_t>(static_cast<double>(c.count("head_dim")) *
                                                       parts::rotary_share(d, {"partial_rotary_factor"}, 0.25)));
  c.expect("hidden_act", {"silu"});
  c.expect_flag("attn_output_gate", true);
  for (const char* key : {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"}) c.mark_read(key);
  return states;
}

// The tensors that all of them have alike.
void delta_shared_tensors(Draft& d, const std::vector<bool>& states) {
  const bool has_next = d.has("mtp.fc.weight") || d.has("model.mtp.fc.weight");
  if (has_next) d.notes.push_back("the tensors of mtp.* are left out: they predict further tokens");
  for (const char* next : {"mtp.*", "model.mtp.*"}) d.leave(next);
  d.take(kDeltaEnds);
  d.take(kDeltaNorms);
  const std::vector<bool> full = inverted(states);
  d.take(rules::kAttention, full);
  d.take(kDeltaHeadNorms, full);
  const auto first = std::find(full.begin(), full.end(), true);
  if (first == full.end()) return d.config.mark_read("attention_bias");
  parts::check_bias(d, "attention_bias", fmt::format("blk.{}.attn_q.bias", first - full.begin()));
}

void delta_experts(Draft& d) {
  d.count("expert_feed_forward_length", d.config.count("moe_intermediate_size"));
  d.count("expert_shared_feed_forward_length", d.config.count("shared_expert_intermediate_size"));
  if (d.has("model.layers.0.mlp.experts.gate_up_proj")) {
    d.take(kFusedDeltaExperts);
  } else {
    d.take(rules::kExperts);
  }
  d.take(rules::kGatedSharedExpert);
}

const StoredTensor& need_rows(Draft& d, int64_t layer, std::string_view part, int64_t rows) {
  const StoredTensor& t = d.need(fmt::format("model.layers.{}.linear_attn.{}", layer, part));
  const int64_t found = t.shape.size() == 1 ? t.cols() : t.rows();
  if (found != rows)
    throw Error(Errc::bad_file,
                fmt::format("{} has {} rows; needs {}, by the heads of config.json", base::shown(t.name), found, rows));
  return t;
}

// The checkpoint has for each key head its queries, its keys, its values and their gates; the file all queries, all
// keys, all values, and the gates apart.
void sort_projection(Draft& d, const DeltaHeads& heads, int64_t layer) {
  const int64_t values = heads.n_each() * heads.value_dim, group = 2 * heads.key_dim + 2 * values;
  const StoredTensor& t = need_rows(d, layer, "in_proj_qkvz.weight", heads.n_keys * group);
  const auto part = [&](std::vector<Slice>& slices, int64_t first, int64_t n) {
    for (int64_t i = 0; i < heads.n_keys; ++i)
      slices.push_back({.tensor = &t, .first = i * group + first, .n_rows = n});
  };
  std::vector<Slice> qkv, gates;
  part(qkv, 0, heads.key_dim);
  part(qkv, heads.key_dim, heads.key_dim);
  part(qkv, 2 * heads.key_dim, values);
  part(gates, 2 * heads.key_dim + values, values);
  d.add(fmt::format("blk.{}.attn_qkv.weight", layer), {heads.n_keys * (2 * heads.key_dim + values), t.cols()},
        std::move(qkv));
  d.add(fmt::format("blk.{}.attn_gate.weight", layer), {heads.n_keys * values, t.cols()}, std::move(gates));
}

void qwen3next(Draft& d) {
  const DeltaHeads heads = delta_heads(d);
  const std::vector<bool> states = delta_keys(d, heads);
  parts::require_experts_everywhere(d);
  parts::require_norm_of_router(d, "norm_topk_prob");
  delta_shared_tensors(d, states);
  d.take(kDeltaNet, states);
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    if (states[static_cast<size_t>(layer)]) sort_projection(d, heads, layer);
  }
  delta_experts(d);
}

// Behind `first` rows that stay, value heads of `width` rows: those of one key head stand together in the checkpoint;
// in the file the first of each key head come first, then the second ones.
std::vector<Slice> values_in_turns(const StoredTensor& t, const DeltaHeads& heads, int64_t first, int64_t width) {
  std::vector<Slice> slices;
  if (first > 0) slices.push_back({.tensor = &t, .n_rows = first});
  for (int64_t i = 0; i < heads.n_each(); ++i) {
    for (int64_t key = 0; key < heads.n_keys; ++key)
      slices.push_back({.tensor = &t, .first = first + (key * heads.n_each() + i) * width, .n_rows = width});
  }
  return slices;
}

void turn_value_heads(Draft& d, const DeltaHeads& heads, int64_t layer) {
  const int64_t keys = 2 * heads.n_keys * heads.key_dim, values = heads.n_values * heads.value_dim;
  const auto matrix = [&](std::string_view from, std::string_view to, int64_t first, int64_t width) {
    const int64_t rows = first + heads.n_values * width;
    const StoredTensor& t = need_rows(d, layer, from, rows);
    d.add(fmt::format("blk.{}.{}", layer, to), {rows, t.cols()}, values_in_turns(t, heads, first, width));
  };
  const auto vector = [&](std::string_view from, std::string_view to) -> Output& {
    const StoredTensor& t = need_rows(d, layer, from, heads.n_values);
    if (t.shape.size() != 1)
      throw Error(Errc::bad_file, fmt::format("{} has {} dimensions; needs 1", base::shown(t.name), t.shape.size()));
    Output& output = d.add(fmt::format("blk.{}.{}", layer, to), {heads.n_values}, values_in_turns(t, heads, 0, 1));
    output.cols = 1;
    output.rows = heads.n_values;
    return output;
  };
  matrix("in_proj_qkv.weight", "attn_qkv.weight", keys, heads.value_dim);
  matrix("in_proj_z.weight", "attn_gate.weight", 0, heads.value_dim);
  matrix("in_proj_a.weight", "ssm_alpha.weight", 0, 1);
  matrix("in_proj_b.weight", "ssm_beta.weight", 0, 1);
  matrix("conv1d.weight", "ssm_conv1d.weight", keys, heads.value_dim);
  vector("A_log", "ssm_a").negative_exp = true;
  vector("dt_bias", "ssm_dt.bias");
  const StoredTensor& out = d.need(fmt::format("model.layers.{}.linear_attn.out_proj.weight", layer));
  if (out.shape.size() != 2 || out.cols() != values)
    throw Error(Errc::bad_file, fmt::format("{} has {} columns; needs {}, by the heads of config.json",
                                            base::shown(out.name), out.cols(), values));
  d.add(fmt::format("blk.{}.ssm_out.weight", layer), {out.rows(), values}, {{.tensor = &out, .n_rows = out.rows()}})
      .columns = {heads.n_keys, heads.n_each(), heads.value_dim};
}

constexpr std::array kDeltaNorm = {Rule{"model.layers.{}.linear_attn.norm.weight", "blk.{}.ssm_norm.weight"}};

// Three parts of a rotation for time, height and width: in a text all of them are the position.
void rope_sections(Draft& d) {
  std::vector<int64_t> sections = {11, 11, 10};
  const Json* params = d.config.find_any({"rope_parameters", "rope_scaling"});
  if (const Json* given = params == nullptr ? nullptr : params->find("mrope_section");
      given != nullptr && given->array() != nullptr && given->array()->size() <= 4) {
    sections.clear();
    for (const Json& one : *given->array())
      sections.push_back(whole_of(number_of(one, "mrope_section"), "mrope_section"));
  }
  sections.resize(4);
  d.counts("rope.dimension_sections", sections);
}

void qwen35(Draft& d) {
  const DeltaHeads heads = delta_heads(d);
  const std::vector<bool> states = delta_keys(d, heads);
  rope_sections(d);
  delta_shared_tensors(d, states);
  d.take(kDeltaNorm, states);
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    if (states[static_cast<size_t>(layer)]) turn_value_heads(d, heads, layer);
  }
  if (d.n_experts > 0) {
    delta_experts(d);
  } else {
    d.take(rules::kGatedFfn);
  }
}

constexpr std::string_view kQwen3NextDefaults =
    R"({"max_position_embeddings":32768,"rms_norm_eps":1e-6,"tie_word_embeddings":false,"rope_theta":10000.0,"head_dim":256,"linear_conv_kernel_dim":4,
        "linear_key_head_dim":128,"linear_value_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,"num_key_value_heads":2,
        "moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts":512,"num_experts_per_tok":10})";
constexpr std::string_view kQwen35Defaults =
    R"({"max_position_embeddings":32768,"rms_norm_eps":1e-6,"tie_word_embeddings":false,"rope_theta":10000.0,"head_dim":256,"linear_conv_kernel_dim":4,
        "linear_key_head_dim":128,"linear_value_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,"num_key_value_heads":4})";
constexpr std::string_view kQwen35MoeDefaults =
    R"({"max_position_embeddings":32768,"rms_norm_eps":1e-6,"tie_word_embeddings":false,"rope_theta":10000.0,"head_dim":256,"linear_conv_kernel_dim":4,
        "linear_key_head_dim":128,"linear_value_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,"num_key_value_heads":2,
        "moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts":256,"num_experts_per_tok":8})";

constexpr std::array kKimiDelta = {
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"model.layers.{}.self_attn.A_log", "blk.{}.ssm_a", As::negative_exp},
    Rule{"model.layers.{}.self_attn.dt_bias", "blk.{}.ssm_dt.bias"},
    Rule{"model.layers.{}.self_attn.f_a_proj.weight", "blk.{}.ssm_f_a.weight"},
    Rule{"model.layers.{}.self_attn.f_b_proj.weight", "blk.{}.ssm_f_b.weight"},
    Rule{"model.layers.{}.self_attn.g_a_proj.weight", "blk.{}.ssm_g_a.weight"},
    Rule{"model.layers.{}.self_attn.g_b_proj.weight", "blk.{}.ssm_g_b.weight"},
    Rule{"model.layers.{}.self_attn.b_proj.weight", "blk.{}.ssm_beta.weight"},
    Rule{"model.layers.{}.self_attn.o_norm.weight", "blk.{}.ssm_norm.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
};
constexpr std::array kKimiLatent = {
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    Rule{"model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight"},
    Rule{"model.layers.{}.self_attn.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
};
constexpr std::array kKimiDense = {
    // as transformers saves them; the published ones are mlp.*
    Rule{"model.layers.{}.block_sparse_moe.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    Rule{"model.layers.{}.block_sparse_moe.up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.block_sparse_moe.down_proj.weight", "blk.{}.ffn_down.weight"},
};
constexpr std::array kKimiRouterBias = {
    Rule{"model.layers.{}.block_sparse_moe.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
};
constexpr std::array kKimiShared = {
    Rule{"model.layers.{}.block_sparse_moe.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    Rule{"model.layers.{}.block_sparse_moe.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    Rule{"model.layers.{}.block_sparse_moe.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
};

struct KimiShape {
  int64_t head_dim = 0, kernel = 0;
  std::vector<bool> states;
};

// Layers of linear_attn_config, counted from 1.
void mark_layers(const Json& all, std::string_view key, bool value, std::vector<bool>& states,
                 std::vector<bool>& said) {
  const Json* list = all.find(key);
  if (list == nullptr || list->array() == nullptr)
    throw Error(Errc::bad_file, fmt::format("config.json: linear_attn_config needs {}, an array of layers", key));
  for (const Json& one : *list->array()) {
    const int64_t layer = whole_of(number_of(one, key), key);
    if (layer < 1 || layer > static_cast<int64_t>(states.size()) || said[static_cast<size_t>(layer - 1)])
      throw Error(Errc::bad_file,
                  fmt::format("config.json: {} has layer {} of {}, or has it twice", key, layer, states.size()));
    states[static_cast<size_t>(layer - 1)] = value;
    said[static_cast<size_t>(layer - 1)] = true;
  }
}

KimiShape kimi_shape(Draft& d) {
  Config& c = d.config;
  KimiShape shape;
  const Json* own = c.find("linear_attn_config");
  if (own == nullptr || own->object() == nullptr) {
    shape.head_dim = c.count("linear_head_dim");
    shape.kernel = c.count("linear_conv_kernel_dim");
    shape.states = state_layers(d, 4);
    if (c.count("linear_num_heads") != d.n_heads)
      throw Error(
          Errc::unsupported,
          fmt::format(
              "config.json: linear_num_heads is {}, num_attention_heads {}; kimi-linear files have one number for both",
              c.count("linear_num_heads"), d.n_heads));
    if (!c.has("layer_types")) throw Error(Errc::bad_file, "config.json: needs linear_attn_config or layer_types");
    return shape;
  }
  for (const auto& [key, value] : *own->object()) {
    constexpr std::array kKnown = {"head_dim", "num_heads", "short_conv_kernel_size", "full_attn_layers", "kda_layers"};
    if (std::find(kKnown.begin(), kKnown.end(), key) == kKnown.end())
      throw Error(Errc::unsupported, fmt::format("config.json: linear_attn_config has {} = {}, which is not known",
                                                 base::shown(key), value.shown()));
  }
  const auto count = [&](std::string_view key) {
    const Json* value = own->find(key);
    if (value == nullptr) throw Error(Errc::bad_file, fmt::format("config.json: linear_attn_config needs {}", key));
    return whole_of(number_of(*value, key), key);
  };
  shape.head_dim = count("head_dim");
  shape.kernel = count("short_conv_kernel_size");
  if (count("num_heads") != d.n_heads)
    throw Error(Errc::unsupported, fmt::format("config.json: linear_attn_config has num_heads = {}, "
                                               "num_attention_heads is {}; kimi-linear files have one number for both",
                                               count("num_heads"), d.n_heads));
  shape.states.assign(static_cast<size_t>(d.n_layers), false);
  std::vector<bool> said(shape.states);
  mark_layers(*own, "kda_layers", true, shape.states, said);
  mark_layers(*own, "full_attn_layers", false, shape.states, said);
  if (const auto missing = std::find(said.begin(), said.end(), false); missing != said.end())
    throw Error(Errc::bad_file,
                fmt::format("config.json: linear_attn_config says nothing of layer {}", missing - said.begin() + 1));
  for (const char* key : {"linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "layer_types"})
    c.mark_read(key);
  return shape;
}

KimiShape kimi_keys(Draft& d) {
  Config& c = d.config;
  parts::sizes(d, {.context_key = c.has("model_max_length") ? "model_max_length" : "max_position_embeddings"});
  KimiShape shape = kimi_shape(d);
  if (d.n_kv_heads != d.n_heads)
    throw Error(
        Errc::unsupported,
        fmt::format("config.json: num_key_value_heads is {}, num_attention_heads {}; kimi-linear files have as many",
                    d.n_kv_heads, d.n_heads));
  if (const auto theta = c.find_number("rope_theta")) d.number("rope.freq_base", *theta);
  std::vector<int64_t> heads;
  for (const bool is_state : shape.states) heads.push_back(is_state ? 0 : 1);
  d.counts("attention.head_count_kv", heads);
  d.count("vocab_size", c.count("vocab_size"));
  d.count("ssm.conv_kernel", shape.kernel);
  d.count("kda.head_dim", shape.head_dim);
  const int64_t rank = c.count("kv_lora_rank"), turned = c.count("qk_rope_head_dim");
  d.count("attention.kv_lora_rank", rank);
  d.count("rope.dimension_count", turned);
  d.count("attention.key_length", rank + turned);
  if (const auto dim = c.find_count("head_dim")) d.count("attention.value_length", *dim);
  d.count("attention.key_length_mla", c.count("qk_nope_head_dim") + turned);
  d.count("attention.value_length_mla", c.count("v_head_dim"));
  d.count("expert_feed_forward_length", c.count("moe_intermediate_size"));
  d.count("expert_shared_count", c.count("num_shared_experts"));
  d.count("leading_dense_block_count", c.count("first_k_dense_replace"));
  d.number("expert_weights_scale", c.number("routed_scaling_factor"));
  if (const auto groups = c.find_count("num_expert_group"); groups && *groups > 1)
    d.count("expert_group_count", *groups);
  return shape;
}

// What the file has no key for.
void kimi_requirements(Draft& d) {
  Config& c = d.config;
  if (c.has("q_lora_rank"))
    throw Error(Errc::unsupported, "config.json: q_lora_rank is there; needs null: queries from the width itself");
  c.expect_flag("mla_use_nope", true);
  c.expect_flag("attention_bias", false);
  parts::require_norm_of_router(d, "moe_renormalize");
  c.expect("hidden_act", {"silu"});
  c.expect("topk_method", {"noaux_tc"});
  c.expect("moe_router_activation_func", {"sigmoid"});
  if (c.find_count("moe_layer_freq").value_or(1) != 1)
    throw Error(Errc::unsupported, "config.json: moe_layer_freq is not 1; kimi-linear files have no key for it");
  const std::vector<std::string> kinds = c.texts("mlp_layer_types");
  const auto lead = static_cast<size_t>(c.count("first_k_dense_replace"));
  for (size_t layer = 0; layer < kinds.size(); ++layer) {
    if (kinds[layer] != (layer < lead ? "dense" : "sparse"))
      throw Error(
          Errc::unsupported,
          fmt::format(
              "config.json: mlp_layer_types has {} at layer {}, first_k_dense_replace is {}; files have one number",
              base::shown(kinds[layer]), layer, lead));
  }
  for (const char* key : {"use_grouped_topk", "num_nextn_predict_layers", "qk_head_dim"}) c.mark_read(key);
}

void kimi_linear(Draft& d) {
  const KimiShape shape = kimi_keys(d);
  kimi_requirements(d);
  const int64_t lead = d.config.count("first_k_dense_replace");
  if (lead > d.n_layers)
    throw Error(Errc::bad_file, fmt::format("config.json: first_k_dense_replace is {} of {} layers", lead, d.n_layers));
  d.leave_layers(d.n_layers, "they predict further tokens");
  if (d.has("lm_head.weight"))
    d.is_tied = false;  // transformers' class ties nothing, whatever tie_word_embeddings says
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(kKimiDelta, shape.states);
  d.take(kKimiLatent, inverted(shape.states));
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    if (!shape.states[static_cast<size_t>(layer)]) {
      parts::split_expansion(d, layer);
      continue;
    }
    for (const char* part : {"q", "k", "v"}) {
      const StoredTensor& t = d.need(fmt::format("model.layers.{}.self_attn.{}_conv1d.weight", layer, part));
      if (t.rows() != d.n_heads * shape.head_dim || t.cols() != shape.kernel)
        throw Error(Errc::bad_file,
                    fmt::format("{} has {} rows of {}; needs {} heads of {}, {} wide", base::shown(t.name), t.rows(),
                                t.cols(), d.n_heads, shape.head_dim, shape.kernel));
      d.add(fmt::format("blk.{}.ssm_conv1d_{}.weight", layer, part), {1, t.rows(), 1, t.cols()},
            {{.tensor = &t, .n_rows = t.rows()}});
    }
  }
  if (lead > 0) {
    if (d.has("model.layers.0.block_sparse_moe.gate_proj.weight")) {
      d.take(kKimiDense, 0, lead);
    } else {
      d.take(rules::kGatedFfn, 0, lead);
    }
  }
  if (lead == d.n_layers) return;
  d.take(rules::kSparseMoe, lead, d.n_layers);
  d.take(kKimiRouterBias, lead, d.n_layers);
  if (d.config.count("num_shared_experts") > 0) d.take(kKimiShared, lead, d.n_layers);
}

constexpr std::array kGemma3n = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.norm.weight", "output_norm.weight"},
    Rule{"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    Rule{"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    Rule{"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    Rule{"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"},
    Rule{"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    Rule{"model.layers.{}.per_layer_input_gate.weight", "blk.{}.inp_gate.weight"},
    Rule{"model.layers.{}.per_layer_projection.weight", "blk.{}.proj.weight"},
    Rule{"model.layers.{}.post_per_layer_input_norm.weight", "blk.{}.post_norm.weight"},
    Rule{"model.layers.{}.altup.correction_coefs.weight", "blk.{}.altup_correct_coef.weight"},
    Rule{"model.layers.{}.altup.prediction_coefs.weight", "blk.{}.altup_predict_coef.weight"},
    Rule{"model.layers.{}.altup.modality_router.weight", "blk.{}.altup_router.weight"},
    Rule{"model.layers.{}.altup.router_norm.weight", "blk.{}.altup_router_norm.weight"},
    Rule{"model.layers.{}.laurel.linear_left.weight", "blk.{}.laurel_l.weight"},
    Rule{"model.layers.{}.laurel.linear_right.weight", "blk.{}.laurel_r.weight"},
    Rule{"model.layers.{}.laurel.post_laurel_norm.weight", "blk.{}.laurel_post_norm.weight"},
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    Rule{"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
};
constexpr std::array kGemma3nScale = {
    Rule{"model.layers.{}.altup.correct_output_scale", "blk.{}.altup_correct_scale.weight"},
};
constexpr std::array kGemma3nKeys = {
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
};
// Layers that read the cache of another one; the published folders have them nonetheless.
constexpr std::array kGemma3nUnusedKeys = {
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", As::plain, true},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", As::plain, true},
    Rule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", As::plain, true},
};

// The inverse of the error function, by Newton's method from Winitzki's guess.
double inverse_erf(double y) {
  if (std::abs(y) >= 1) return std::copysign(std::numeric_limits<double>::infinity(), y);
  const double l = std::log1p(-y * y), a = 2 / (std::numbers::pi * 0.147) + l / 2;
  double x = std::copysign(std::sqrt(std::sqrt(a * a - l / 0.147) - a), y);
  for (int i = 0; i < 6; ++i) x -= (std::erf(x) - y) * std::sqrt(std::numbers::pi) / 2 * std::exp(x * x);
  return x;
}

// By how many deviations the gates that are kept stand out, from the share that is not; in float32, as the other
// converters have it. No share: minus infinity.
void sparsity_keys(Draft& d) {
  std::vector<double> shares;
  const Json* given = d.config.find("activation_sparsity_pattern");
  if (given == nullptr) {
    for (int64_t layer = 0; layer < d.n_layers; ++layer) shares.push_back(d.n_layers > 10 && layer < 10 ? 0.95 : 0.0);
  } else if (given->array() != nullptr) {
    for (const Json& one : *given->array()) shares.push_back(number_of(one, "activation_sparsity_pattern"));
  } else {
    shares.assign(static_cast<size_t>(d.n_layers), number_of(*given, "activation_sparsity_pattern"));
  }
  if (shares.size() != static_cast<size_t>(d.n_layers))
    throw Error(Errc::bad_file,
                fmt::format("config.json: activation_sparsity_pattern has {} entries, the model {} layers",
                            shares.size(), d.n_layers));
  std::vector<float> scales;
  for (const double share : shares) {
    if (!(share >= 0 && share < 1))
      throw Error(Errc::bad_file,
                  fmt::format("config.json: activation_sparsity_pattern holds {}; needs 0 or more, below 1", share));
    if (share > 0 && share <= 0.5)
      throw Error(
          Errc::unsupported,
          fmt::format("config.json: activation_sparsity_pattern holds {}; gemma3n files say shares above 0.5, or "
                      "0: readers take a cut at or below the mean as none",
                      share));
    const float y = 2 * static_cast<float>(share) - 1;
    scales.push_back(static_cast<float>(inverse_erf(static_cast<double>(y))) * static_cast<float>(std::numbers::sqrt2));
  }
  d.set_plain(fmt::format("{}.activation_sparsity_scale", d.architecture()), scales);
}

int64_t gemma3n_keys(Draft& d) {
  Config& c = d.config;
  parts::sizes(d, {.has_experts = false, .has_ffn_width = false});
  parts::key_lengths(d);
  parts::rope(d, {.local_theta = 10000});
  const Json* width = c.find("intermediate_size");
  std::vector<int64_t> widths =
      width != nullptr && width->array() != nullptr
          ? c.counts("intermediate_size")
          : std::vector<int64_t>(static_cast<size_t>(d.n_layers), c.count("intermediate_size"));
  if (widths.size() != static_cast<size_t>(d.n_layers))
    throw Error(Errc::bad_file, fmt::format("config.json: intermediate_size has {} entries, the model {} layers",
                                            widths.size(), d.n_layers));
  d.counts("feed_forward_length", widths);
  const int64_t n_shared = c.count("num_kv_shared_layers"), n_streams = c.count("altup_num_inputs"),
                active = c.count("altup_active_idx");
  if (n_shared >= d.n_layers)
    throw Error(Errc::bad_file,
                fmt::format("config.json: num_kv_shared_layers is {} of {} layers", n_shared, d.n_layers));
  if (n_streams < 2 || n_streams > 64 || active >= n_streams)
    throw Error(Errc::bad_file,
                fmt::format("config.json: altup_num_inputs is {}, altup_active_idx {}; needs 2 to 64, and one of them",
                            n_streams, active));
  if (const auto cap = c.find_number("final_logit_softcapping"); cap && *cap != 0)
    d.number("final_logit_softcapping", *cap);
  d.count("attention.sliding_window", c.count("sliding_window"));
  d.count("altup.active_idx", active);
  d.count("altup.num_inputs", n_streams);
  d.count("embedding_length_per_layer_input", c.count("hidden_size_per_layer_input"));
  d.count("attention.shared_kv_layers", n_shared);
  sparsity_keys(d);
  d.flags("attention.sliding_window_pattern", parts::window_layers(d, [](int64_t layer) { return layer % 5 != 4; }));
  c.expect("hidden_activation", {"gelu_pytorch_tanh"});
  c.expect_flag("attention_bias", false);
  c.expect_flag("use_bidirectional_attention", false);
  if (!c.flag("tie_word_embeddings", true))
    throw Error(Errc::unsupported,
                "config.json: tie_word_embeddings is false; gemma3n files have no head of their own");
  for (const char* key : {"altup_coef_clip", "laurel_rank", "vocab_size_per_layer_input", "audio_config",
                          "query_pre_attn_scalar", "audio_soft_tokens_per_image", "vision_soft_tokens_per_image",
                          "audio_token_id", "boa_token_id", "eoa_token_id", "eoi_token_id"})
    c.mark_read(key);
  return n_streams;
}

void gemma3n(Draft& d) {
  const int64_t n_streams = gemma3n_keys(d), width = d.config.count("hidden_size");
  d.leave("lm_head.weight");
  d.take(kGemma3n);
  d.take(rules::kGatedFfn);
  if (d.config.flag("altup_correct_scale", true)) {
    d.take(kGemma3nScale);
  } else {
    d.leave("model.layers.*.altup.correct_output_scale");
  }
  const int64_t first = d.n_layers - d.config.count("num_kv_shared_layers");
  d.take(kGemma3nKeys, 0, first);
  d.take(kGemma3nUnusedKeys, first, d.n_layers);
  const auto stacked = [&](std::string_view from, std::string_view to) {
    std::vector<Slice> slices;
    for (int64_t i = 0; i + 1 < n_streams; ++i) {
      const StoredTensor& t = d.need(fmt::format("model.{}.{}.weight", from, i));
      if (t.shape != std::vector<int64_t>{width, width})
        throw Error(Errc::bad_file, fmt::format("{} has the shape [{}]; needs [{}, {}]", base::shown(t.name),
                                                fmt::join(t.shape, ", "), width, width));
      slices.push_back({.tensor = &t, .n_rows = width});
    }
    d.add(std::string(to), {n_streams - 1, width, width}, std::move(slices));
  };
  stacked("altup_projections", "altup_proj.weight");
  stacked("altup_unembed_projections", "altup_unembd_proj.weight");
  for (const char* name : {"token_embd.weight", "per_layer_token_embd.weight"})
    d.fill_up(name, d.config.count("vocab_size"));
}

constexpr std::string_view kKimiDefaults =
    R"({"model_max_length":1048576,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"num_shared_experts":1,"routed_scaling_factor":2.446,"first_k_dense_replace":1,
        "kv_lora_rank":512,"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,"moe_intermediate_size":1024,"num_experts_per_token":8,"topk_group":1,
        "moe_router_activation_func":"sigmoid","linear_head_dim":128,"linear_num_heads":32,"linear_conv_kernel_dim":4})";
constexpr std::string_view kGemma3nDefaults =
    R"({"vocab_size":262400,"hidden_size":2048,"intermediate_size":16384,"num_hidden_layers":35,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":256,
        "max_position_embeddings":32768,"rms_norm_eps":1e-6,"tie_word_embeddings":true,"sliding_window":512,"final_logit_softcapping":30.0,
        "hidden_size_per_layer_input":256,"altup_active_idx":0,"altup_num_inputs":4,"num_kv_shared_layers":15,"rope_theta":1000000.0})";

}  // namespace

std::vector<Family> delta_families() {
  using enum VocabularyKind;
  return {
      {"qwen3next", {"Qwen3NextForCausalLM"}, kQwen3NextDefaults, bpe, qwen3next},
      {"qwen35", {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"}, kQwen35Defaults, bpe, qwen35},
      {"qwen35moe", {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"}, kQwen35MoeDefaults, bpe, qwen35},
      {"kimi-linear", {"KimiLinearForCausalLM", "KimiLinearModel"}, kKimiDefaults, bpe, kimi_linear},
      {"gemma3n",
       {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"},
       kGemma3nDefaults,
       pieces,
       gemma3n,
       {.no_space_prefix = true}},
  };
}

}  // namespace assay::converting
