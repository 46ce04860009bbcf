// Command with experts: Cohere 2 whose routed and shared experts are averaged; its leading dense layers always rotate.
// The norms are RMS where the file has that epsilon, else LayerNorm.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId cohere2moe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const double logit_scale = input.keys.find_positive("logit_scale", 1e30).value_or(1);
  RouteRule rule = d.route_rule(ops::Gating::softmax, true);
  if (rule.gating == ops::Gating::softmax)
    rule.normalise = true;  // the softmax is over the chosen alone, whatever the file says
  const int64_t lead = d.leading_dense();
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(4, false);
  const ops::RopeId rope_full = d.rope(Pairing::pairs), rope_windowed = d.rope_windowed(Pairing::pairs);
  const auto norm = [&](std::string_view name, ValueId x) {
    return d.h.norm_eps > 0 ? d.rms(name, x) : d.layer_norm(name, x);
  };
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    ValueId n = norm("attn_norm", x);
    Heads heads = d.project(n);
    if (local || layer < lead) heads = d.turn(heads, local ? rope_windowed : rope_full);
    const ValueId o = d.attend(heads, d.scaled(), {&x, &n});
    const ValueId f =
        layer < lead ? d.ffn_gated(n, ops::ActivationFunction::silu) : p.scale("ffn_mean", d.mixture(n, rule), 0.5);
    x = p.add("residual", p.add("attn_residual", x, o), f);
  }
  p.end_layers();
  return p.scale("output_scaled", d.logits(norm("output_norm", x)), logit_scale);
}

}  // namespace assay::model::arch
