// K-EXAONE: heads normed, windows in three of four layers and rotation in those alone, experts by sigmoid beside a
// shared one after dense layers.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId exaone_moe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
  const int64_t lead = d.leading_dense();
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(4, true);
  const ops::RopeId rope = window == 0 ? d.rope(Pairing::halves) : d.rope_windowed(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    Heads heads = d.norm_heads(d.project(d.rms("attn_norm", x)));
    if (window == 0 || local) heads = d.turn(heads, rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, layer < lead ? d.ffn_gated(f, ops::ActivationFunction::silu) : d.mixture(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
