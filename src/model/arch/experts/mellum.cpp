// Mellum 2: heads normed, windows in three of four layers, YaRN in the full ones only, experts by softmax.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId mellum(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::softmax, true);
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(4, true);
  const ops::RopeId rope_full = d.rope(Pairing::halves),
                    rope_windowed = d.plain_rope(Pairing::halves, d.rope_theta_windowed());
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    const Heads heads = d.turn(d.norm_heads(d.project(d.rms("attn_norm", x))), local ? rope_windowed : rope_full);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, d.experts(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
