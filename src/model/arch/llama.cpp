// Llama, and what shares its graph and name in GGUF: Mistral, SmolLM, TinyLlama, ... A pre-norm decoder with grouped queries, interleaved
// RoPE and SwiGLU; biases and a head of its own where the file has them. Source: Touvron et al. 2023, arXiv:2302.13971.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId llama(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.h.n_layers; ++layer) {
    d.begin_layer(layer, d.window());  // Mistral 7B 0.1 has one
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
