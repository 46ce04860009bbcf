// ERNIE 4.5 with experts: ERNIE 4.5 whose experts are taken by softmax with a bias for the choice, in every so-manieth
// layer after the dense ones.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId ernie4_5_moe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::softmax, true);
  const int64_t lead = d.leading_dense();
  const int64_t step = input.keys.find_count("interleave_moe_layer_step", 1, kLayersMax).value_or(1);
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const bool routed = layer >= lead && (layer + 1) % step == 0;
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, !routed ? d.ffn_gated(f, ops::ActivationFunction::silu) : d.mixture(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
