// GLM-4-0414: norms before and after attention and FFN, half of each head turns (pairs; halves in files of GLM-4V),
// gate and up in one tensor. Source: Hugging Face transformers, modeling_glm4.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId glm4(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(d.has_rope_sections() ? Pairing::halves : Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, d.rms("post_attention_norm", o));
    const ValueId f = d.ffn_fused(d.rms("ffn_norm", x), ops::ActivationFunction::silu);
    x = p.add("residual", x, d.rms("post_ffw_norm", f));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
