// Nomic's BERT: rotation of halves in place of learned positions, fused projections, SwiGLU; the norms stand as in
// BERT. No head. Source: Nussbaum et al. 2024, arXiv:2402.01613.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId nomic_bert(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const AttentionRule rule = d.both_ways();
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.layer_norm("token_embd_norm", d.add_token_type(d.embed()));
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const ValueId o = d.attend(d.turn(d.project(x), rope), rule, {&x});
    x = d.layer_norm("attn_output_norm", p.add("attn_residual", x, o));
    x = d.layer_norm("layer_output_norm", p.add("residual", x, d.ffn_gated(x, ops::ActivationFunction::silu)));
  }
  p.end_layers();
  return d.no_logits(x);
}

}  // namespace assay::model::arch
