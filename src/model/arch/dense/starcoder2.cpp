// StarCoder2: LayerNorm with bias, biases everywhere, GELU without a gate, a window. Source: Lozhkov et al. 2024,
// arXiv:2402.19173.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId starcoder2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer, d.window());
    const Heads heads = d.turn(d.project(d.layer_norm("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_plain(d.layer_norm("ffn_norm", x), ops::ActivationFunction::gelu_tanh));
  }
  p.end_layers();
  return d.logits(d.layer_norm("output_norm", x));
}

}  // namespace assay::model::arch
