// MiniMax M2: queries and keys normed over their whole width, partial rotation, experts by sigmoid with a bias for the
// choice. Source: Hugging Face transformers, modeling_minimax_m2.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId minimax_m2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
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
