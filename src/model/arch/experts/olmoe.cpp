// OLMoE: queries and keys normed over their whole width, experts by softmax whose weights stay as they are. Source:
// Muennighoff et al. 2024, arXiv:2409.02060.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId olmoe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::softmax, false);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.norm_whole(d.project(d.rms("attn_norm", x))), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, d.experts(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
