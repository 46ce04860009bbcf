// dots.llm1: heads normed, experts by sigmoid beside shared ones after dense layers. Source: rednote-hilab 2025,
// arXiv:2506.05767.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId dots1(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
  const int64_t lead = d.leading_dense();
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.norm_heads(d.project(d.rms("attn_norm", x))), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, layer < lead ? d.ffn_gated(f, ops::ActivationFunction::silu) : d.mixture(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
