// MiMo-V2-Flash: keys wider than values, KV heads by layer, partial rotation, windows with sinks, what attention gives
// is scaled, experts by sigmoid.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId mimo2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
  const double value_scale = input.keys.number("attention.value_scale", 1);
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(1, false);
  const ops::RopeId rope_full = d.rope(Pairing::halves);
  const ops::RopeId rope_windowed =
      d.plain_rope(Pairing::halves, input.keys.find_positive("rope.freq_base_swa", 1e30).value_or(10000.0));
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), local ? rope_windowed : rope_full);
    AttentionRule attention = d.scaled();
    attention.sinks = p.has("attn_sinks.weight");
    const ValueId attended = d.attend_heads(heads, attention, {&x});
    x = p.add("attn_residual", x, d.attn_output(p.scale("attn_scaled", attended, value_scale)));
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, d.has_router() ? d.experts(f, rule) : d.ffn_gated(f, ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
