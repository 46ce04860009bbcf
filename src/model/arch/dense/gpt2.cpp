// GPT-2: learned positions, LayerNorm and biases, GELU without a gate, a tied head. Source: Radford et al. 2019.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId gpt2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  ValueId x = p.add("embedded", d.embed(), p.embed_position("position_embd", d.h.n_ctx_train, d.h.d_model));
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const ValueId o = d.attend(d.project(d.layer_norm("attn_norm", x)), d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_plain(d.layer_norm("ffn_norm", x), ops::ActivationFunction::gelu_tanh));
  }
  p.end_layers();
  return d.logits(d.layer_norm("output_norm", x));
}

}  // namespace assay::model::arch
