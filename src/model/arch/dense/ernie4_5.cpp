// ERNIE 4.5, dense: a llama whose rows of q and k are in the order of the checkpoint, which turns pairs. Source:
// ERNIE 4.5 technical report.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId ernie4_5(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::pairs);
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
