// Qwen2 and 2.5: a llama with biases on queries, keys and values, whose rotation turns halves. Source: Qwen2 technical
// report, arXiv:2407.10671.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId qwen2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
