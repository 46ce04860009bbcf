// EXAONE 4: no norm before attention and FFN but on what they give, heads normed; where there is a window three of four
// layers have it, and only they rotate. Source: EXAONE 4.0, arXiv:2507.11407.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId exaone4(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(4, true);
  const ops::RopeId rope = window == 0 ? d.rope(Pairing::halves) : d.rope_windowed(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    Heads heads = d.norm_heads(d.project(x));
    if (window == 0 || local) heads = d.turn(heads, rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, d.rms("post_attention_norm", o));
    x = p.add("residual", x, d.rms("post_ffw_norm", d.ffn_gated(x, ops::ActivationFunction::silu)));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
