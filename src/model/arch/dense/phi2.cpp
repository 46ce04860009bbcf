// Phi-1, 1.5 and 2: attention and FFN side by side on one LayerNorm, biases everywhere, partial rotation, GELU without
// a gate. Source: Gunasekar et al. 2023, arXiv:2306.11644.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId phi2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    ValueId n = d.layer_norm("attn_norm", x);
    const ValueId o = d.attend(d.turn(d.project(n), rope), d.scaled(), {&x, &n});
    const ValueId f = d.ffn_plain(n, ops::ActivationFunction::gelu_tanh);
    x = p.add("residual", p.add("attn_residual", x, o), f);
  }
  p.end_layers();
  return d.logits(d.layer_norm("output_norm", x));
}

}  // namespace assay::model::arch
