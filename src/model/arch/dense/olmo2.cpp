// OLMo 2 and 3: no norm before attention and FFN but on what they give; queries and keys normed over their whole width;
// OLMo 3 has windows, and YaRN in its full layers only. Source: OLMo 2, arXiv:2501.00656.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId olmo2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(4, true);
  const ops::RopeId rope_full = d.rope(Pairing::halves);
  const ops::RopeId rope_windowed = d.plain_rope(Pairing::halves, d.rope_theta_windowed());
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    const Heads heads = d.turn(d.norm_whole(d.project(x)), local ? rope_windowed : rope_full);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, d.rms("post_attention_norm", o));
    x = p.add("residual", x, d.rms("post_ffw_norm", d.ffn_gated(x, ops::ActivationFunction::silu)));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
