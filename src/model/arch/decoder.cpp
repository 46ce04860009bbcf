// See decoder.h.
#include "model/arch/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/error.h"

namespace assay::model::arch {

using ops::ValueId;

Decoder::Decoder(const ArchInput& arch_input, PlanBuilder& builder)
    : input(arch_input), h(arch_input.hparams), p(builder), n_layers(h.n_layers) {
  const int64_t n_predictors = input.keys.find_count("nextn_predict_layers", 0, h.n_layers - 1).value_or(0);
  n_layers -= n_predictors;
  for (int64_t layer = n_layers; layer < h.n_layers; ++layer) p.weights().ignore(fmt::format("blk.{}.", layer));
}

ops::RopeId Decoder::scaled_rope(Pairing pairing, double theta) const {
  const std::vector<float> factors = p.weights().optional_values("rope_freqs.weight", h.rope_dim / 2);
  return p.add_rope(make_rope(h.rope_dim, theta, pairing == Pairing::pairs, read_rope_scaling(input.keys, h), factors));
}

ops::RopeId Decoder::rope(Pairing pairing) const { return scaled_rope(pairing, h.rope_theta); }

ops::RopeId Decoder::rope_windowed(Pairing pairing) const { return scaled_rope(pairing, rope_theta_windowed()); }

ops::RopeId Decoder::plain_rope(Pairing pairing, double theta) const {
  return p.add_rope(make_rope(h.rope_dim, theta, pairing == Pairing::pairs, {}));
}

// Contexts up to the original length divide the frequencies by the short factors, longer ones by the long factors from
// their first token on. A plan has one rotation, so contexts end where the short factors do.
ops::RopeId Decoder::long_rope(Pairing pairing) const {
  const int64_t n = h.rope_dim / 2;
  const std::vector<float> factors = p.weights().optional_values("rope_factors_short.weight", n);
  p.weights().optional_values("rope_factors_long.weight", n);
  if (factors.empty()) return rope(pairing);
  const int64_t original =
      input.keys.find_count("rope.scaling.original_context_length", 1, kContextMax).value_or(h.n_ctx_train);
  if (original < h.n_ctx_train) p.set_n_ctx_max(original);
  return p.add_rope(
      make_rope(h.rope_dim, h.rope_theta, pairing == Pairing::pairs, read_rope_scaling(input.keys, h), factors));
}

double Decoder::rope_theta_windowed() const {
  return input.keys.find_positive("rope.freq_base_swa", 1e30).value_or(h.rope_theta);
}

bool Decoder::has_rope_sections() const {
  const auto sections = input.keys.metadata().find_integers(input.keys.key("rope.dimension_sections"));
  return sections && std::ranges::any_of(*sections, [](int64_t n) { return n > 0; });
}

int64_t Decoder::window(int64_t otherwise) const {
  return input.keys.find_count("attention.sliding_window", 0, kContextMax).value_or(otherwise);
}

std::vector<bool> Decoder::windowed_layers(int64_t period, bool last_full, int64_t otherwise) const {
  std::vector<bool> windowed = input.keys.windowed_layers(h.n_layers, period, last_full);
  const bool some = std::ranges::find(windowed, true) != windowed.end();
  if (some && input.keys.find_count("attention.sliding_window", 0, kContextMax) == 0) {
    throw Error(Errc::bad_file, fmt::format("{}: needs at least 1 position for the layers with a window, found 0; a "
                                            "model without windows has no such key",
                                            input.keys.key("attention.sliding_window")));
  }
  if (window(otherwise) == 0) windowed.assign(windowed.size(), false);
  return windowed;
}

ValueId Decoder::embed(double scale) const { return p.embed("token_embd", input.vocab_size, h.d_model, scale); }

void Decoder::begin_layer(int32_t layer, ops::CacheLayer cache) const {
  if (h.n_heads == 0) input.keys.count("attention.head_count", 1, kHeadsMax);  // says that it is missing
  const auto at = static_cast<size_t>(layer);
  if (h.n_kv_heads_of[at] == 0)
    throw Error(Errc::bad_file,
                fmt::format("{}: layer {} needs heads, found 0", input.keys.key("attention.head_count_kv"), layer));
  cache.n_kv_heads = h.n_kv_heads_of[at];
  p.begin_layer(layer, cache);
}

ValueId Decoder::rms(std::string_view name, ValueId x) const {
  if (!(h.norm_eps > 0)) input.keys.positive("attention.layer_norm_rms_epsilon", 1.0);
  return p.rms_norm(name, x, h.norm_eps);
}

ValueId Decoder::rms_heads(std::string_view name, ValueId x) const {
  if (!(h.norm_eps > 0)) input.keys.positive("attention.layer_norm_rms_epsilon", 1.0);
  return p.rms_norm_heads(name, x, h.head_dim, h.norm_eps);
}

float Decoder::layer_norm_eps() const {
  if (!(h.layer_norm_eps > 0)) input.keys.positive("attention.layer_norm_epsilon", 1.0);
  return h.layer_norm_eps;
}

ValueId Decoder::layer_norm(std::string_view name, ValueId x) const {
  return p.layer_norm(name, x, layer_norm_eps(), NormWeights::required);
}

Heads Decoder::project(ValueId x) const {
  const int64_t q = n_heads() * h.head_dim, k = n_kv_heads() * h.head_dim, v = n_kv_heads() * h.value_dim;
  if (p.has("attn_qkv.weight")) {
    const auto part = [&](const std::string& name, int64_t begin, int64_t width) {
      const ValueId y = p.linear_rows(name, "attn_qkv", x, q + k + v, begin, width);
      const std::string bias = name + ".bias";  // some converters fuse the matrices alone
      return p.has(bias) ? p.add_columns(name + "_biased", bias, y) : y;
    };
    return {part("attn_q", 0, q), part("attn_k", q, k), part("attn_v", q + k, v)};
  }
  return {p.linear("attn_q", x, q, Bias::optional), p.linear("attn_k", x, k, Bias::optional),
          p.linear("attn_v", x, v, Bias::optional)};
}

Heads Decoder::turn(const Heads& heads, ops::RopeId rope) const {
  return {p.rope("attn_q_rope", heads.q, rope, h.head_dim), p.rope("attn_k_rope", heads.k, rope, h.head_dim), heads.v};
}

Heads Decoder::norm_whole(const Heads& heads) const {
  return {rms("attn_q_norm", heads.q), rms("attn_k_norm", heads.k), heads.v};
}

Heads Decoder::norm_heads(const Heads& heads) const {
  return {rms_heads("attn_q_norm", heads.q), rms_heads("attn_k_norm", heads.k), heads.v};
}

AttentionRule Decoder::scaled() const { return {1.0 / std::sqrt(static_cast<double>(h.head_dim))}; }

AttentionRule Decoder::both_ways() const {
  if (input.keys.flag("attention.causal", false)) {
    throw Error(Errc::unsupported, fmt::format("{} = true: this build serves {} models whose tokens see later ones",
                                               input.keys.key("attention.causal"), input.keys.architecture()));
  }
  AttentionRule rule = scaled();
  rule.causal = false;
  return rule;
}

ValueId Decoder::add_token_type(ValueId x) const {
  if (!p.has("token_types.weight")) return x;
  return p.add("typed", x, p.embed_row("token_types", p.rows_of("token_types.weight"), h.d_model, 0));
}

void Decoder::dense_layers() const {
  int64_t width = h.d_model;
  for (const char* name : {"dense_2", "dense_3"}) {
    const std::string tensor = fmt::format("{}.weight", name), in = fmt::format("{}_feat_in", name),
                      out = fmt::format("{}_feat_out", name);
    const auto n_in = input.keys.find_count(in, 1, kWidthMax), n_out = input.keys.find_count(out, 1, kWidthMax);
    if (!p.has(tensor)) continue;
    if (n_in.value_or(width) != width) {
      throw Error(Errc::bad_file, fmt::format("{}: needs {}, what stands before {}, found {}", input.keys.key(in),
                                              width, tensor, *n_in));
    }
    width = p.dense(tensor, n_out.value_or(p.rows_of(tensor)), width);
  }
}

ValueId Decoder::attend_heads(const Heads& heads, const AttentionRule& rule,
                              std::initializer_list<ValueId*> residuals) const {
  if (heads.k != ops::kNone) p.kv_store("kv_store", heads.k, heads.v);
  return attended(p.attention("attention", heads.q, n_heads(), rule), residuals);
}

ValueId Decoder::attended(ValueId o, std::initializer_list<ValueId*> residuals) const {
  if (is_last(p.layer())) {  // what follows concerns only the tokens whose logits are wanted
    o = p.select_outputs("attention_selected", o);
    int i = 0;
    for (ValueId* x : residuals)
      *x = p.select_outputs(i++ == 0 ? "residual_selected" : fmt::format("residual_selected_{}", i), *x);
  }
  return o;
}

ValueId Decoder::wanted(std::string_view name, ValueId x) const {
  return is_last(p.layer()) ? p.select_outputs(fmt::format("{}_selected", name), x) : x;
}

ValueId Decoder::attn_output(ValueId o) const { return p.linear("attn_output", o, h.d_model, Bias::optional); }

ValueId Decoder::attend(const Heads& heads, const AttentionRule& rule,
                        std::initializer_list<ValueId*> residuals) const {
  return attn_output(attend_heads(heads, rule, residuals));
}

int64_t Decoder::d_ff() const {
  if (h.d_ff_of[at_layer()] > 0) return h.d_ff_of[at_layer()];
  if (h.d_ff == 0) return input.keys.count("feed_forward_length", 1, kWidthMax);
  throw Error(Errc::bad_file,
              fmt::format("{}: layer {} needs a width, found 0", input.keys.key("feed_forward_length"), p.layer()));
}

ValueId Decoder::swiglu(ValueId x, std::string_view ending, int64_t width) const {
  const auto name = [&](const char* part) { return fmt::format("ffn_{}{}", part, ending); };
  const ValueId gate = p.linear(name("gate"), x, width, Bias::optional),
                up = p.linear(name("up"), x, width, Bias::optional);
  return p.linear(name("down"), p.gate(name("act"), gate, up, ops::ActivationFunction::silu), h.d_model,
                  Bias::optional);
}

int64_t Decoder::n_experts() const { return input.keys.count("expert_count", 1, ops::kExpertsMax); }

int64_t Decoder::d_expert() const {
  const auto own = input.keys.find_counts("expert_feed_forward_length", h.n_layers, 0, kWidthMax);
  const int64_t width = own ? (*own)[at_layer()] : 0;
  if (width > 0) return width;
  // Files older than the key: each expert has the layer's whole width, or those that are used share it.
  const int64_t whole = d_ff(), n_used = n_experts_used(), share = whole / n_used;
  const bool is_shared =
      whole % n_used == 0 && p.has("ffn_up_exps.weight") && p.rows_of("ffn_up_exps.weight") == n_experts() * share;
  return is_shared ? share : whole;
}

RouteRule Decoder::route_rule(ops::Gating gating, bool normalise) const {
  RouteRule rule{gating, 0, normalise};  // how many are used is asked of each layer
  if (const auto found = input.keys.find_count("expert_gating_func", 0, 4); found && *found > 0) {
    constexpr ops::Gating kGatings[] = {ops::Gating::softmax, ops::Gating::sigmoid, ops::Gating::softmax_of_chosen,
                                        ops::Gating::sqrt_softplus};
    rule.gating = kGatings[*found - 1];
  }
  rule.normalise = input.keys.flag("expert_weights_norm", normalise);
  if (const double scale = input.keys.number("expert_weights_scale", 1); scale != 0) rule.scale = scale;
  if (rule.scale < 0)
    throw Error(Errc::bad_file,
                fmt::format("{}: needs a value above 0, found {}", input.keys.key("expert_weights_scale"), rule.scale));
  rule.n_groups = std::max<int64_t>(1, input.keys.find_count("expert_group_count", 0, n_experts()).value_or(1));
  rule.n_groups_used =
      std::max<int64_t>(1, input.keys.find_count("expert_group_used_count", 0, rule.n_groups).value_or(rule.n_groups));
  if (n_experts() % rule.n_groups != 0) {
    throw Error(Errc::bad_file,
                fmt::format("{}: needs a divisor of {} ({}), found {}", input.keys.key("expert_group_count"),
                            n_experts(), input.keys.key("expert_count"), rule.n_groups));
  }
  return rule;
}

int64_t Decoder::n_experts_used() const {
  const auto used = input.keys.find_counts("expert_used_count", h.n_layers, 0, n_experts());
  const int64_t n = used ? (*used)[at_layer()] : 0;
  if (used && n == 0)
    throw Error(Errc::bad_file,
                fmt::format("{}: layer {} needs experts, found 0", input.keys.key("expert_used_count"), p.layer()));
  return used ? n : input.keys.count("expert_used_count", 1, n_experts());  // says that it is missing
}

ValueId Decoder::routes(ValueId x, RouteRule rule) const {
  rule.n_used = n_experts_used();
  return p.route("ffn_routes", p.linear("ffn_gate_inp", x, n_experts(), Bias::optional), rule);
}

ValueId Decoder::experts(ValueId x, ValueId routes, bool weighted, ops::ActivationFunction activation) const {
  const int64_t n_used = p.width(routes) / 2, width = d_expert();
  const bool fused = p.has("ffn_gate_up_exps.weight");
  const ExpertShape in{n_experts(), n_used, h.d_model, width, fused ? 2 * width : 0, 0};
  ExpertShape of_up = in;
  if (fused) of_up.first_row = width;
  const ValueId gate = p.expert_linear("ffn_gate_exps", fused ? "ffn_gate_up_exps" : "ffn_gate_exps", x, routes, in);
  const ValueId up = p.expert_linear("ffn_up_exps", fused ? "ffn_gate_up_exps" : "ffn_up_exps", x, routes, of_up);
  const ValueId act = p.gate("ffn_act_exps", gate, up, activation);
  const ValueId down =
      p.expert_linear("ffn_down_exps", "ffn_down_exps", act, routes, {n_experts(), n_used, width, h.d_model});
  return p.expert_sum("ffn_moe", down, routes, weighted);
}

ValueId Decoder::experts(ValueId x, const RouteRule& rule) const { return experts(x, routes(x, rule), true); }

ValueId Decoder::mixture(ValueId x, const RouteRule& rule) const {
  const ValueId routed = experts(x, rule);
  return p.has("ffn_up_shexp.weight") ? p.add("ffn_all", routed, shared_experts(x)) : routed;
}

ValueId Decoder::shared_experts(ValueId x) const { return swiglu(x, "_shexp", p.rows_of("ffn_up_shexp.weight")); }

ValueId Decoder::ffn_gated(ValueId x, ops::ActivationFunction activation) const {
  const ValueId gate = p.linear("ffn_gate", x, d_ff(), Bias::optional);
  const ValueId up = p.linear("ffn_up", x, d_ff(), Bias::optional);
  return p.linear("ffn_down", p.gate("ffn_act", gate, up, activation), h.d_model, Bias::optional);
}

ValueId Decoder::ffn_fused(ValueId x, ops::ActivationFunction activation) const {
  const ValueId gate = p.linear_rows("ffn_gate", "ffn_up", x, 2 * d_ff(), 0, d_ff());
  const ValueId up = p.linear_rows("ffn_up", "ffn_up", x, 2 * d_ff(), d_ff(), d_ff());
  return p.linear("ffn_down", p.gate("ffn_act", gate, up, activation), h.d_model, Bias::optional);
}

ValueId Decoder::ffn_plain(ValueId x, ops::ActivationFunction activation) const {
  const ValueId up = p.linear("ffn_up", x, d_ff(), Bias::optional);
  return p.linear("ffn_down", p.activate("ffn_act", up, activation), h.d_model, Bias::optional);
}

FileScales Decoder::scales() const {
  FileScales s{input.keys.find_positive("embedding_scale", 1e30).value_or(1),
               input.keys.find_positive("residual_scale", 1e30).value_or(1),
               1 / input.keys.find_positive("logit_scale", 1e30).value_or(1), scaled()};
  if (const double scale = input.keys.number("attention.scale", 0); scale != 0) s.attention.scale = scale;
  if (s.attention.scale < 0)
    throw Error(Errc::bad_file, fmt::format("{}: needs a value above 0, found {}", input.keys.key("attention.scale"),
                                            s.attention.scale));
  return s;
}

ValueId Decoder::no_logits(ValueId x) const {
  p.set_hidden(x);
  return ops::kNone;
}

ValueId Decoder::logits(ValueId x) const {
  p.set_hidden(x);
  const ops::WeightId head = p.weights().optional_matrix("output.weight", input.vocab_size, h.d_model);
  const ops::WeightId tied = p.weights().matrix("token_embd.weight", input.vocab_size, h.d_model);
  return p.linear("output", x, input.vocab_size, head != ops::kNone ? head : tied,
                  p.weights().optional_vector("output.bias", input.vocab_size));
}

ValueId Decoder::capped(ValueId logits) const {
  const double cap = input.keys.number("final_logit_softcapping", 0);
  if (cap < 0)
    throw Error(Errc::bad_file,
                fmt::format("{}: needs a value from 0, found {}", input.keys.key("final_logit_softcapping"), cap));
  return cap > 0 ? p.softcap("output_capped", logits, cap) : logits;
}

}  // namespace assay::model::arch
