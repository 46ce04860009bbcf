// Granite 4 with windows: Granite with sinks in every layer, windows by a pattern, and a flag for each layer that says
// whether it rotates.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId granite_swa(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const FileScales scales = d.scales();
  AttentionRule rule = scales.attention;
  rule.sinks = true;
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(1, false);
  const std::vector<bool> turns =
      input.keys.find_flags("attention.rope_pattern", d.h.n_layers).value_or(std::vector<bool>(windowed.size(), true));
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed(scales.embedding);
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer, windowed[static_cast<size_t>(layer)] ? window : 0);
    Heads heads = d.project(d.rms("attn_norm", x));
    if (turns[static_cast<size_t>(layer)]) heads = d.turn(heads, rope);
    const ValueId o = d.attend(heads, rule, {&x});
    x = p.add("attn_residual", x, p.scale("attn_scaled", o, scales.residual));
    const ValueId f = d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::silu);
    x = p.add("residual", x, p.scale("ffn_scaled", f, scales.residual));
  }
  p.end_layers();
  return p.scale("output_scaled", d.logits(d.rms("output_norm", x)), scales.logits);
}

}  // namespace assay::model::arch
