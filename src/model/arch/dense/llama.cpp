// Llama, and what shares its graph and name in GGUF: Mistral, SmolLM, TinyLlama, ... A pre-norm decoder with grouped
// queries, interleaved RoPE and SwiGLU; biases and a head of its own where the file has them; Mixtral's experts by
// softmax. Source: Touvron et al. 2023, arXiv:2302.13971; Jiang et al. 2024, arXiv:2401.04088.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId llama(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const int64_t n_experts = input.keys.find_count("expert_count", 0, ops::kExpertsMax).value_or(0);
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer, d.window());  // Mistral 7B 0.1 has one
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x,
              n_experts > 0 ? d.experts(f, d.route_rule(ops::Gating::softmax, true))
                            : d.ffn_gated(f, ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
