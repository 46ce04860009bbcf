// EuroBERT: llama's layers, halves in the rotation, tokens that all see one another. No head. Source: Boizard et al.
// 2025, arXiv:2503.05500.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId eurobert(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const AttentionRule rule = d.both_ways();
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const ValueId o = d.attend(d.turn(d.project(d.rms("attn_norm", x)), rope), rule, {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.no_logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
