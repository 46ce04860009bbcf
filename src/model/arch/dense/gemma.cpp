// Gemma 1: scaled embeddings, GELU gates, a tied head; the norms of the file hold 1 + weight. Source: Gemma technical
// report, arXiv:2403.08295.
#include <cmath>

#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId gemma(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed(std::sqrt(static_cast<double>(d.h.d_model)));
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::gelu_tanh));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
