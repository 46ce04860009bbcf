// BERT: learned positions, one kind of token, tokens that all see one another, LayerNorm after attention and after the
// FFN, GELU by the error function. No head. Source: Devlin et al. 2018, arXiv:1810.04805.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId bert(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const AttentionRule rule = d.both_ways();
  const ValueId typed = d.add_token_type(d.embed());
  const ValueId placed =
      p.add("embedded", typed, p.embed_position("position_embd", p.rows_of("position_embd.weight"), d.h.d_model));
  ValueId x = d.layer_norm("token_embd_norm", placed);
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const ValueId o = d.attend(d.project(x), rule, {&x});
    x = d.layer_norm("attn_output_norm", p.add("attn_residual", x, o));
    x = d.layer_norm("layer_output_norm", p.add("residual", x, d.ffn_plain(x, ops::ActivationFunction::gelu_erf)));
  }
  p.end_layers();
  return d.no_logits(x);
}

}  // namespace assay::model::arch
