// Granite 3 and 4, dense: a llama whose embeddings, scores, residuals and logits are scaled by numbers of the file. Source: Granite 3.0 language models;
// Hugging Face transformers, modeling_granite.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId granite(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const double embedding_scale = input.keys.number("embedding_scale", 1), residual_scale = input.keys.number("residual_scale", 1);
  const double logit_scale = input.keys.find_positive("logit_scale", 1e30).value_or(1);
  AttentionRule rule = d.scaled();
  if (const double scale = input.keys.number("attention.scale", 0); scale != 0) rule.scale = scale;
  const bool turns = input.keys.flag("rope.scaling.finetuned", true);
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed(embedding_scale);
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    Heads heads = d.project(d.rms("attn_norm", x));
    if (turns) heads = d.turn(heads, rope);
    const ValueId o = d.attend(heads, rule, {&x});
    x = p.add("attn_residual", x, p.scale("attn_scaled", o, residual_scale));
    const ValueId f = d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::silu);
    x = p.add("residual", x, p.scale("ffn_scaled", f, residual_scale));
  }
  p.end_layers();
  return p.scale("output_scaled", d.logits(d.rms("output_norm", x)), 1 / logit_scale);
}

}  // namespace assay::model::arch
