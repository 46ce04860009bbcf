// Granite 3 and 4, dense: a llama whose embeddings, scores, residuals and logits are scaled by numbers of the file.
// Source: Granite 3.0 language models; Hugging Face transformers, modeling_granite.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId granite(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const FileScales scales = d.scales();
  const bool turns = input.keys.flag("rope.scaling.finetuned", true);
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed(scales.embedding);
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    Heads heads = d.project(d.rms("attn_norm", x));
    if (turns) heads = d.turn(heads, rope);
    const ValueId o = d.attend(heads, scales.attention, {&x});
    x = p.add("attn_residual", x, p.scale("attn_scaled", o, scales.residual));
    const ValueId f = d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::silu);
    x = p.add("residual", x, p.scale("ffn_scaled", f, scales.residual));
  }
  p.end_layers();
  return p.scale("output_scaled", d.logits(d.rms("output_norm", x)), scales.logits);
}

}  // namespace assay::model::arch
