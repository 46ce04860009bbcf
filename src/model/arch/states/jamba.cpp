// Jamba: layers of Mamba with normed dt, B and C, attention without rotation between them; every other layer has
// experts. Source: arXiv:2403.19887.
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {

ops::ValueId jamba(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const Mamba mixer(d, Mamba::Norms::weighted);
  const bool has_experts = input.keys.find_count("expert_count", 0, ops::kExpertsMax).value_or(0) > 0;
  const RouteRule rule = has_experts ? d.route_rule(ops::Gating::softmax, false) : RouteRule{};
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    ValueId o;
    if (is_recurrent(d, layer)) {
      p.begin_layer(layer);
      o = mixer.mix(d.rms("attn_norm", x));
      x = d.wanted("residual", x);
    } else {
      d.begin_layer(layer);
      o = d.attend(d.project(d.rms("attn_norm", x)), d.scaled(), {&x});
    }
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, d.has_router() ? d.experts(f, rule) : d.ffn_gated(f, ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
