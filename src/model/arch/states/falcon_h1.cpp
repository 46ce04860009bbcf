// Falcon-H1: in every layer attention and Mamba 2 side by side, both of the same normed input. The converter folds the
// multipliers into the weights. Source: Falcon-H1, arXiv:2507.22448.
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {

ops::ValueId falcon_h1(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const Mamba2 mamba(d, d.h.norm_eps);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const ValueId n = d.rms("attn_norm", x);
    const ValueId o = d.attend(d.turn(d.project(n), rope), d.scaled(), {&x});
    x = p.add("attn_residual", x, p.add("mixed", o, mamba.mix(n)));
    const ValueId f = p.has("ffn_norm") ? p.rms_norm_by("ffn_norm", "ffn_norm", x, d.h.norm_eps) : d.rms("ffn_norm", x);
    x = p.add("residual", x, d.ffn_gated(f, ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
