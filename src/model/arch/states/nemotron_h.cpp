// Nemotron-H, Nemotron Nano 2 and 3, Super: one block a layer: Mamba 2, attention without rotation, or a feed-forward
// layer by squared ReLU, dense or with experts (which may work on a shorter vector). The key of the epsilon is
// LayerNorm's, the norms are RMS. Source: Nemotron-H, arXiv:2504.03624.
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {
namespace {

using ops::ActivationFunction;
using ops::ValueId;

float nemotron_eps(const Decoder& d) {
  return d.h.layer_norm_eps > 0 || !(d.h.norm_eps > 0) ? d.layer_norm_eps() : d.h.norm_eps;
}

// Experts without a gate: up, squared ReLU, down.
ValueId squared_experts(const Decoder& d, ValueId x, RouteRule rule) {
  PlanBuilder& p = d.p;
  const ValueId routes = d.routes(x, rule);
  const int64_t n_used = p.width(routes) / 2, width = d.d_expert(),
                d_latent = d.input.keys.find_count("moe_latent_size", 0, kWidthMax).value_or(0);
  const int64_t d_in = d_latent > 0 ? d_latent : d.h.d_model;
  const ValueId in = d_latent > 0 ? p.linear("ffn_latent_down", x, d_latent, Bias::optional) : x;
  const ValueId up = p.expert_linear("ffn_up_exps", "ffn_up_exps", in, routes, {d.n_experts(), n_used, d_in, width});
  const ValueId act = p.activate("ffn_act_exps", up, ActivationFunction::relu_squared);
  const ValueId sum = p.expert_sum(
      "ffn_moe", p.expert_linear("ffn_down_exps", "ffn_down_exps", act, routes, {d.n_experts(), n_used, width, d_in}),
      routes, true);
  const ValueId routed = d_latent > 0 ? p.linear("ffn_latent_up", sum, d.h.d_model, Bias::optional) : sum;
  if (!p.has("ffn_up_shexp.weight")) return routed;
  const ValueId shared =
      p.activate("ffn_act_shexp", p.linear("ffn_up_shexp", x, p.rows_of("ffn_up_shexp.weight"), Bias::optional),
                 ActivationFunction::relu_squared);
  return p.add("ffn_all", routed, p.linear("ffn_down_shexp", shared, d.h.d_model, Bias::optional));
}

}  // namespace

ValueId nemotron_h(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  const float eps = nemotron_eps(d);
  const Mamba2 mamba(d, eps);
  const bool has_experts = input.keys.find_count("expert_count", 0, ops::kExpertsMax).value_or(0) > 0;
  const RouteRule rule = has_experts ? d.route_rule(ops::Gating::sigmoid, true) : RouteRule{};
  input.keys.find_count("moe_latent_size", 0, kWidthMax);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool is_ffn = d.h.d_ff_of[static_cast<size_t>(layer)] > 0;
    if (is_ffn || is_recurrent(d, layer)) p.begin_layer(layer);
    if (is_ffn) {
      x = d.wanted("residual", x);
      const ValueId f = p.rms_norm("attn_norm", x, eps);
      x = p.add("residual", x,
                d.has_router() ? squared_experts(d, f, rule) : d.ffn_plain(f, ActivationFunction::relu_squared));
    } else if (is_recurrent(d, layer)) {
      const ValueId o = mamba.mix(p.rms_norm("attn_norm", x, eps));
      x = p.add("residual", d.wanted("residual", x), o);
    } else {
      d.begin_layer(layer);
      const ValueId o = d.attend(d.project(p.rms_norm("attn_norm", x, eps)), d.scaled(), {&x});
      x = p.add("residual", x, o);
    }
  }
  p.end_layers();
  return d.logits(p.rms_norm("output_norm", x, eps));
}

}  // namespace assay::model::arch
