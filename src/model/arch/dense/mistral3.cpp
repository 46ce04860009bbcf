// Ministral 3, Mistral Small 3 and Devstral 2: a llama with YaRN whose queries grow with the position beyond the
// original context. Source: Hugging Face transformers, modeling_ministral3.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId mistral3(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const int64_t n_experts = input.keys.find_count("expert_count", 0, ops::kExpertsMax).value_or(0);
  const double beta = input.keys.number("attention.temperature_scale", 0);
  const int64_t period =
      input.keys.find_count("rope.scaling.original_context_length", 1, kContextMax).value_or(d.h.n_ctx_train);
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer, d.window());
    Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    if (beta != 0) heads.q = p.scale_by_position("attn_q_scaled", heads.q, beta, period, 0);
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
