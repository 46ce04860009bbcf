// Command-R7B and Command A: Command-R with windows in three of four layers, and rotation in those alone. Source:
// Hugging Face transformers, modeling_cohere2.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId cohere2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const double logit_scale = input.keys.find_positive("logit_scale", 1e30).value_or(1);
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(4, true);
  const ops::RopeId rope = d.rope_windowed(Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    ValueId n = d.layer_norm("attn_norm", x);
    Heads heads = d.project(n);
    if (local) heads = d.turn(heads, rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x, &n});
    const ValueId f = d.ffn_gated(n, ops::ActivationFunction::silu);
    x = p.add("residual", p.add("attn_residual", x, o), f);
  }
  p.end_layers();
  return p.scale("output_scaled", d.logits(d.layer_norm("output_norm", x)), logit_scale);
}

}  // namespace assay::model::arch
