// Families whose layers keep a state by the delta rule (Qwen3-Next, Qwen3.5, Kimi Linear), and Gemma 3n. Source of what
// the folders hold: Hugging Face transformers 5, modeling_{qwen3_next,qwen3_5,qwen3_5_moe,kimi_linear,gemma3n}.py.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/families.h"
#include "convert/family_rules.h"

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

}  // namespace

std::vector<Family> delta_families() {
  using enum VocabularyKind;
  return {
      {"qwen3next", {"Qwen3NextForCausalLM"}, kQwen3NextDefaults, bpe, qwen3next},
      {"qwen35", {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"}, kQwen35Defaults, bpe, qwen35},
      {"qwen35moe", {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"}, kQwen35MoeDefaults, bpe, qwen35},
  };
}

}  // namespace assay::converting
