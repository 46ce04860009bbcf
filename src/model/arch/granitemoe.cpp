// Granite 3 with experts: Granite whose experts are taken by softmax, beside shared ones where the file has them.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId granitemoe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const double embedding_scale = input.keys.number("embedding_scale", 1), residual_scale = input.keys.number("residual_scale", 1);
  const double logit_scale = input.keys.find_positive("logit_scale", 1e30).value_or(1);
  AttentionRule attention = d.scaled();
  if (const double scale = input.keys.number("attention.scale", 0); scale != 0) attention.scale = scale;
  const RouteRule rule = d.route_rule(ops::Gating::softmax, true);
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed(embedding_scale);
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, attention, {&x});
    x = p.add("attn_residual", x, p.scale("attn_scaled", o, residual_scale));
    const ValueId f = d.rms("ffn_norm", x);
    ValueId all = d.experts(f, rule);
    if (p.has("ffn_up_shexp.weight")) all = p.add("ffn_all", all, d.shared_experts(f));
    x = p.add("residual", x, p.scale("ffn_scaled", all, residual_scale));
  }
  p.end_layers();
  return p.scale("output_scaled", d.logits(d.rms("output_norm", x)), 1 / logit_scale);
}

}  // namespace assay::model::arch
