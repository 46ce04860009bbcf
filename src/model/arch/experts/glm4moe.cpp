// GLM-4.5 to 4.7: biases on queries, keys and values, heads normed in the large ones, half of each head turns; experts
// by sigmoid beside a shared one. What the file calls post_attention_norm stands before the feed-forward layer. Source:
// GLM-4.5, arXiv:2508.06471.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId glm4moe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
  const int64_t lead = d.leading_dense();
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads made = d.project(d.rms("attn_norm", x));
    const Heads heads = d.turn(p.has("attn_q_norm.weight") ? d.norm_heads(made) : made, rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("post_attention_norm", x);
    x = p.add("residual", x, layer < lead ? d.ffn_gated(f, ops::ActivationFunction::silu) : d.mixture(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
