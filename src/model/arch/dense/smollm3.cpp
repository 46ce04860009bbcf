// SmolLM3: a llama that does not rotate in every fourth layer. The file has no key for this. Source: Hugging Face
// transformers, modeling_smollm3.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId smollm3(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  constexpr int32_t kPeriod = 4;  // layers 3, 7, 11, ... see no positions
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    Heads heads = d.project(d.rms("attn_norm", x));
    if ((layer + 1) % kPeriod != 0) heads = d.turn(heads, rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
