// Command-R and Aya: attention and FFN side by side on one LayerNorm, tied head, scaled logits; R+ norms each head of q
// and k. Source: Hugging Face transformers, modeling_cohere.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId command_r(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const double logit_scale = input.keys.find_positive("logit_scale", 1e30).value_or(1);
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    ValueId n = d.layer_norm("attn_norm", x);
    Heads heads = d.project(n);
    if (p.has("attn_q_norm.weight")) {
      heads.q = p.layer_norm_heads("attn_q_norm", heads.q, d.h.head_dim, d.layer_norm_eps());
      heads.k = p.layer_norm_heads("attn_k_norm", heads.k, d.h.head_dim, d.layer_norm_eps());
    }
    const ValueId o = d.attend(d.turn(heads, rope), d.scaled(), {&x, &n});
    const ValueId f = d.ffn_gated(n, ops::ActivationFunction::silu);
    x = p.add("residual", p.add("attn_residual", x, o), f);
  }
  p.end_layers();
  return p.scale("output_scaled", d.logits(d.layer_norm("output_norm", x)), logit_scale);
}

}  // namespace assay::model::arch
