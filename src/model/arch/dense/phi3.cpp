// Phi-3, 3.5-mini, Phi-4: a llama with fused projections; long files have two sets of rotation factors, of which the
// short one is served: see docs/families.md. Source: Abdin et al. 2024, arXiv:2404.14219.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId phi3(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.long_rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer, d.window());  // of all layers, as transformers has it
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    const bool fused = !p.has("ffn_gate.weight");
    x = p.add("residual", x,
              fused ? d.ffn_fused(f, ops::ActivationFunction::silu) : d.ffn_gated(f, ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
