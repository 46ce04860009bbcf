// Qwen3-30B-A3B, 235B-A22B, Coder: Qwen3 with experts by softmax, normalised. Source: Qwen3 technical report,
// arXiv:2505.09388.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId qwen3moe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::softmax, true);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.norm_heads(d.project(d.rms("attn_norm", x))), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, d.experts(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
