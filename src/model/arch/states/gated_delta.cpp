// See gated_delta.h. Sources: Yang et al. 2024, arXiv:2412.06464; Kimi Linear, arXiv:2510.26692.
#include "model/arch/states/gated_delta.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "assay/error.h"
#include "model/arch/states/recurrent.h"
#include "ops/state/causal_conv.h"

namespace assay::model::arch {
namespace {

using ops::ActivationFunction;
using ops::ValueId;

constexpr float kUnitEps = 1e-6f;  // of the L2 norms of q and k, whatever the file says of the others

ValueId unit_heads(PlanBuilder& p, const char* name, ValueId x, int64_t d) { return p.l2_norm(name, x, d, kUnitEps); }

}  // namespace

GatedDeltaNet::GatedDeltaNet(const Decoder& decoder, bool tiled, ActivationFunction output_gate)
    : d_(decoder), tiled_(tiled), output_gate_(output_gate) {
  const KeyReader& keys = d_.input.keys;
  kernel_ = keys.count("ssm.conv_kernel", 1, ops::kConvKernelMax);
  d_k_ = keys.count("ssm.state_size", 1, kHeadDimMax);
  n_key_heads_ = keys.count("ssm.group_count", 1, kHeadsMax);
  n_heads_ = keys.count("ssm.time_step_rank", 1, kHeadsMax);
  const int64_t d_inner = keys.count("ssm.inner_size", 1, kWidthMax);
  if (n_heads_ % n_key_heads_ != 0) {
    throw Error(Errc::bad_file, fmt::format("{}: needs a divisor of {} ({}), found {}", keys.key("ssm.group_count"),
                                            n_heads_, keys.key("ssm.time_step_rank"), n_key_heads_));
  }
  if (d_inner % n_heads_ != 0) {
    throw Error(Errc::bad_file, fmt::format("{}: needs a divisor of {} ({}), found {}", keys.key("ssm.time_step_rank"),
                                            d_inner, keys.key("ssm.inner_size"), n_heads_));
  }
  d_v_ = d_inner / n_heads_;
}

// ssm_alpha and ssm_beta, or ssm_ba, which has for each key head (b of its value heads, a of its value heads).
std::pair<ValueId, ValueId> GatedDeltaNet::alpha_beta(ValueId x) const {
  PlanBuilder& p = d_.p;
  if (!p.has("ssm_ba.weight"))
    return {p.linear("ssm_alpha", x, n_heads_, Bias::optional), p.linear("ssm_beta", x, n_heads_, Bias::optional)};
  const ValueId both = p.linear("ssm_ba", x, 2 * n_heads_, Bias::optional);
  const int64_t n = n_heads_ / n_key_heads_;
  return {p.slice("ssm_alpha", both, n_key_heads_, n, n), p.slice("ssm_beta", both, n_key_heads_, 0, n)};
}

// attn_qkv and attn_gate, or the one tensor of older files, which has for each key head (q, k, v of its value heads, z
// of them).
std::pair<ValueId, ValueId> GatedDeltaNet::qkv_gate(ValueId x) const {
  PlanBuilder& p = d_.p;
  const int64_t d_keys = n_key_heads_ * d_k_, d_values = n_heads_ * d_v_;
  if (!p.has("ssm_in.weight")) {
    return {p.linear("attn_qkv", x, 2 * d_keys + d_values, Bias::optional),
            p.linear("attn_gate", x, d_values, Bias::optional)};
  }
  const ValueId all = p.linear("ssm_in", x, 2 * (d_keys + d_values), Bias::optional);
  const int64_t width = d_values / n_key_heads_;
  const ValueId q = p.slice("ssm_in_q", all, n_key_heads_, 0, d_k_),
                k = p.slice("ssm_in_k", all, n_key_heads_, d_k_, d_k_),
                v = p.slice("ssm_in_v", all, n_key_heads_, 2 * d_k_, width);
  return {p.join("attn_qkv", p.join("ssm_in_qk", q, k, 1, d_keys), v, 1, d_values),
          p.slice("attn_gate", all, n_key_heads_, 2 * d_k_ + width, width)};
}

ValueId GatedDeltaNet::mix(ValueId x) const {
  PlanBuilder& p = d_.p;
  const int64_t d_keys = n_key_heads_ * d_k_, d_values = n_heads_ * d_v_;
  auto [qkv, z] = qkv_gate(x);
  const auto [alpha, beta] = alpha_beta(x);
  const ValueId c =
      p.activate("ssm_conv1d_act", p.causal_conv("ssm_conv1d", "ssm_conv1d.weight", "ssm_conv1d.bias", qkv, kernel_),
                 ActivationFunction::silu);
  const ValueId q = unit_heads(p, "ssm_q_unit", p.slice("ssm_q", c, 1, 0, d_keys), d_k_),
                k = unit_heads(p, "ssm_k_unit", p.slice("ssm_k", c, 1, d_keys, d_keys), d_k_);
  const ValueId dt =
      p.activate("ssm_dt_act", p.add_columns("ssm_dt_biased", "ssm_dt.bias", alpha), ActivationFunction::softplus);
  const ValueId decay =
      p.activate("ssm_decay", p.scale_columns("ssm_log_decay", "ssm_a", dt, n_heads_), ActivationFunction::exponential);
  const DeltaRuleInputs in{p.scale("ssm_q_scaled", q, 1 / std::sqrt(static_cast<double>(d_k_))), k,
                           p.slice("ssm_v", c, 1, 2 * d_keys, d_values), decay,
                           p.activate("ssm_beta_act", beta, ActivationFunction::sigmoid)};
  const ValueId o = d_.wanted("ssm_delta", p.delta_rule("ssm_delta", in, n_heads_, n_key_heads_, tiled_));
  z = d_.wanted("attn_gate", z);
  const ValueId normed = p.rms_norm_heads("ssm_norm", o, d_v_, d_.h.norm_eps);
  return p.linear("ssm_out", p.gate("ssm_gated", z, normed, output_gate_), d_.h.d_model, Bias::optional);
}

KimiDelta::KimiDelta(const Decoder& decoder, bool bounded) : d_(decoder) {
  kernel_ = d_.input.keys.count("ssm.conv_kernel", 1, ops::kConvKernelMax);
  head_dim_ = d_.input.keys.count("kda.head_dim", 1, kHeadDimMax);
  const double bound = d_.input.keys.number("kda.gate_lower_bound", -5);
  if (!d_.input.keys.flag("kda.safe_gate", bounded)) return;
  if (bound >= 0)
    throw Error(Errc::bad_file,
                fmt::format("{}: needs a value below 0, found {}", d_.input.keys.key("kda.gate_lower_bound"), bound));
  safe_bound_ = bound;
}

ValueId KimiDelta::projected(const std::string& name, ValueId x, int64_t width) const {
  PlanBuilder& p = d_.p;
  const std::string first = fmt::format("ssm_{}_a", name), second = fmt::format("ssm_{}_b", name);
  if (!p.has(second + ".weight")) return p.linear(first, x, width, Bias::optional);
  return p.linear(second, p.linear(first, x, p.rows_of(first + ".weight"), Bias::optional), width, Bias::optional);
}

ValueId KimiDelta::decay(ValueId x, int64_t n_heads) const {
  PlanBuilder& p = d_.p;
  const ValueId f = p.add_columns("ssm_dt_biased", "ssm_dt.bias", projected("f", x, n_heads * head_dim_));
  ValueId log_decay;
  if (safe_bound_ < 0) {
    log_decay = p.scale(
        "ssm_log_decay",
        p.activate("ssm_dt_act", p.scale_columns("ssm_dt_scaled", "ssm_a", f, n_heads), ActivationFunction::sigmoid),
        safe_bound_);
  } else {
    log_decay =
        p.scale_columns("ssm_log_decay", "ssm_a", p.activate("ssm_dt_act", f, ActivationFunction::softplus), n_heads);
  }
  return p.activate("ssm_decay", log_decay, ActivationFunction::exponential);
}

ValueId KimiDelta::convolved(const char* name, ValueId x, int64_t width) const {
  PlanBuilder& p = d_.p;
  const std::string of = fmt::format("attn_{}", name), conv = fmt::format("ssm_conv1d_{}", name);
  const ValueId y =
      p.causal_conv(conv, conv + ".weight", conv + ".bias", p.linear(of, x, width, Bias::optional), kernel_);
  return p.activate(conv + "_act", y, ActivationFunction::silu);
}

ValueId KimiDelta::mix(ValueId x) const {
  PlanBuilder& p = d_.p;
  const int64_t n_heads = d_.n_heads(), width = n_heads * head_dim_;
  const ValueId q = unit_heads(p, "ssm_q_unit", convolved("q", x, width), head_dim_),
                k = unit_heads(p, "ssm_k_unit", convolved("k", x, width), head_dim_);
  const ValueId v = convolved("v", x, width);
  const ValueId beta =
      p.activate("ssm_beta_act", p.linear("ssm_beta", x, n_heads, Bias::optional), ActivationFunction::sigmoid);
  const DeltaRuleInputs in{p.scale("ssm_q_scaled", q, 1 / std::sqrt(static_cast<double>(head_dim_))), k, v,
                           decay(x, n_heads), beta};
  const ValueId z = d_.wanted("ssm_g", projected("g", x, width)),
                o = d_.wanted("ssm_delta", p.delta_rule("ssm_delta", in, n_heads, n_heads, false));
  const ValueId normed = p.rms_norm_heads("ssm_norm", o, head_dim_, d_.h.norm_eps);
  return d_.attn_output(p.gate("ssm_gated", z, normed, ActivationFunction::sigmoid));
}

ValueId gated_attention(const Decoder& d, ValueId x, ops::RopeId rope, std::initializer_list<ValueId*> residuals) {
  PlanBuilder& p = d.p;
  const int64_t n = d.n_heads(), dim = d.h.head_dim;
  const ValueId both = p.linear("attn_q", x, 2 * n * dim, Bias::optional);
  Heads heads{p.slice("attn_q_heads", both, n, 0, dim), p.linear("attn_k", x, d.n_kv_heads() * dim, Bias::optional),
              p.linear("attn_v", x, d.n_kv_heads() * d.h.value_dim, Bias::optional)};
  ValueId gate = p.slice("attn_q_gate", both, n, dim, d.h.value_dim);
  heads = d.turn(d.norm_heads(heads), rope);
  const ValueId o = d.attend_heads(heads, d.scaled(), residuals);
  gate = d.wanted("attn_q_gate", gate);
  return d.attn_output(p.gate("attn_gated", gate, o, ActivationFunction::sigmoid));
}

ValueId experts_and_gated_shared(const Decoder& d, ValueId x, const RouteRule& rule) {
  PlanBuilder& p = d.p;
  const ValueId routed = d.experts(x, rule);
  if (!p.has("ffn_up_shexp.weight")) return routed;
  const ValueId gate = p.linear("ffn_gate_inp_shexp", x, 1, Bias::none);
  return p.add("ffn_all", routed, p.gate("ffn_shexp", gate, d.shared_experts(x), ActivationFunction::sigmoid));
}

ValueId gated_delta_model(const ArchInput& input, PlanBuilder& p, bool tiled) {
  const Decoder d(input, p);
  const std::vector<bool> recurrent = recurrent_layers(d);
  const GatedDeltaNet delta(d, tiled);
  const bool has_experts = input.keys.find_count("expert_count", 0, ops::kExpertsMax).value_or(0) > 0;
  const RouteRule rule = has_experts ? d.route_rule(ops::Gating::softmax, true) : RouteRule{};
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    ValueId o;
    if (recurrent[static_cast<size_t>(layer)]) {
      p.begin_layer(layer);
      o = delta.mix(d.rms("attn_norm", x));
      x = d.wanted("residual", x);
    } else {
      d.begin_layer(layer);
      o = gated_attention(d, d.rms("attn_norm", x), rope, {&x});
    }
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("post_attention_norm", x);
    x = p.add("residual", x,
              has_experts ? experts_and_gated_shared(d, f, rule) : d.ffn_gated(f, ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
