// Granite: Llama with scales; windows and sinks; experts.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "assay/error.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {

double parts::granite_keys(Draft& d) {
  parts::sizes(d);
  d.count("vocab_size", d.config.count("vocab_size"));
  d.config.mark_read("head_dim");  // the class reads none
  const int64_t width = d.config.count("hidden_size");
  if (width % d.n_heads != 0)
    throw Error(Errc::bad_file,
                fmt::format("config.json: hidden_size is {}, which {} heads do not divide", width, d.n_heads));
  d.count("rope.dimension_count", width / d.n_heads);
  const double base = parts::rope(d);
  d.config.expect("hidden_act", {"silu"});
  const auto scale = [&](std::string_view from, std::string_view to) {
    if (const auto value = d.config.find_number(from); value && *value != 0) d.number(to, *value);
  };
  scale("attention_multiplier", "attention.scale");
  scale("embedding_multiplier", "embedding_scale");
  scale("residual_multiplier", "residual_scale");
  scale("logits_scaling", "logit_scale");
  return base;
}

namespace {

void granite_attention(Draft& d) {
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttentionPairs);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

void granite(Draft& d) {
  parts::granite_keys(d);
  granite_attention(d);
  d.take(rules::kGatedFfn);
  parts::check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

// Which layers rotate. transformers reads layer_rope_theta, 0 where one does not; others have no_rope_layers, 1 where
// one does. A file has one base for all.
void rope_pattern(Draft& d, double rope_theta) {
  const auto flags_of = [&](const char* key, const std::function<bool(double)>& turns) {
    std::vector<bool> pattern;
    const Json* found = d.config.find(key);
    if (found == nullptr || found->array() == nullptr || found->array()->empty()) return pattern;
    for (const Json& one : *found->array()) pattern.push_back(turns(number_of(one, key)));
    if (pattern.size() != static_cast<size_t>(d.n_layers)) {
      throw Error(Errc::bad_file,
                  fmt::format("config.json: {} has {} entries, the model {} layers", key, pattern.size(), d.n_layers));
    }
    return pattern;
  };
  const std::vector<bool> named = flags_of("no_rope_layers", [](double flag) { return flag != 0; });
  const std::vector<bool> turned = flags_of("layer_rope_theta", [&](double theta) {
    if (theta != 0 && theta != rope_theta) {
      throw Error(Errc::unsupported, fmt::format("config.json: layer_rope_theta has {}, rope_theta is {}; granite_swa "
                                                 "files have one base for all layers",
                                                 theta, rope_theta));
    }
    return theta != 0;
  });
  if (!named.empty() && !turned.empty() && named != turned)
    throw Error(Errc::bad_file, "config.json: layer_rope_theta and no_rope_layers name other layers that rotate");
  const std::vector<bool>& pattern = turned.empty() ? named : turned;
  const bool all = std::find(pattern.begin(), pattern.end(), false) == pattern.end();
  if (!named.empty() || !all) d.flags("attention.rope_pattern", pattern);
}

void granite_swa(Draft& d) {
  const double rope_theta = parts::granite_keys(d);
  d.count("attention.sliding_window", d.config.count("sliding_window"));
  d.flags("attention.sliding_window_pattern", parts::window_layers(d, [](int64_t layer) { return layer % 4 != 0; }));
  rope_pattern(d, rope_theta);
  constexpr std::array kSinks = {Rule{"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"}};
  granite_attention(d);
  d.take(kSinks);
  d.take(rules::kGatedFfn);
  parts::check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

constexpr std::array kGraniteExperts = {
    Rule{"model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_gate_exps.weight", As::gate},
    Rule{"model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_up_exps.weight", As::up},
    Rule{"model.layers.{}.block_sparse_moe.output_linear.weight", "blk.{}.ffn_down_exps.weight"},
    Rule{"model.layers.{}.block_sparse_moe.router.layer.weight", "blk.{}.ffn_gate_inp.weight"},
};
constexpr std::array kGraniteShared = {
    Rule{"model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_gate_shexp.weight", As::gate},
    Rule{"model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_up_shexp.weight", As::up},
    Rule{"model.layers.{}.shared_mlp.output_linear.weight", "blk.{}.ffn_down_shexp.weight"},
};

void granitemoe(Draft& d) {
  parts::granite_keys(d);
  const int64_t n_shared = d.config.find_count("shared_intermediate_size").value_or(0);
  if (n_shared > 0) d.count("expert_shared_feed_forward_length", n_shared);
  granite_attention(d);
  d.take(kGraniteExperts);
  if (n_shared > 0) d.take(kGraniteShared);
}

}  // namespace

std::vector<Family> granite_families() {
  using enum VocabularyKind;
  return {
      {"granite", {"GraniteForCausalLM"}, {}, pieces_or_bpe, granite, {.reads_prefix_space = true}},
      {"granite_swa",
       {"GraniteSWAForCausalLM"},
       R"({"sliding_window":128})",
       pieces_or_bpe,
       granite_swa,
       {.reads_prefix_space = true, .pre_of = "granite"}},
      {"granitemoe",
       {"GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"},
       {},
       pieces_or_bpe,
       granitemoe,
       {.reads_prefix_space = true, .pre_of = "granite"}},
  };
}

}  // namespace assay::converting
