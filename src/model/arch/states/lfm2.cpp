// LFM2: short convolutions, and attention with normed heads between them. The norm before the head is called
// token_embd_norm. Source: LFM2 technical report, arXiv:2511.23404.
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {

ops::ValueId lfm2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const int64_t lead = d.leading_dense();
  const bool has_experts = input.keys.find_count("expert_count", 0, ops::kExpertsMax).value_or(0) > 0;
  RouteRule rule = has_experts ? d.route_rule(ops::Gating::sigmoid, true) : RouteRule{};
  rule.least_sum = 1e-6;  // as transformers has it for this family
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    ValueId o;
    if (is_recurrent(d, layer)) {
      p.begin_layer(layer);
      o = short_conv(d, d.rms("attn_norm", x));
      x = d.wanted("residual", x);
    } else {
      d.begin_layer(layer, d.window());  // LFM2.5's audio models have one
      o = d.attend(d.turn(d.norm_heads(d.project(d.rms("attn_norm", x))), rope), d.scaled(), {&x});
    }
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x,
              has_experts && layer >= lead ? d.mixture(f, rule) : d.ffn_gated(f, ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("token_embd_norm", x));
}

}  // namespace assay::model::arch
