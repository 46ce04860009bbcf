// Hunyuan-A13B: heads normed after their rotation, experts by softmax beside a shared one. Source: Hugging Face
// transformers, modeling_hunyuan_v1_moe.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId hunyuan_moe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::softmax, true);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.norm_heads(d.turn(d.project(d.rms("attn_norm", x)), rope));
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, d.mixture(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
