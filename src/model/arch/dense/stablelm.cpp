// StableLM 2: LayerNorm, a quarter of each head turns; the 12B model norms every head and has no norm before its FFN,
// which reads what attention reads. Source: StableLM 2 technical report, arXiv:2402.17834.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId stablelm(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    ValueId n = d.layer_norm("attn_norm", x);
    Heads heads = d.project(n);
    if (p.has("attn_q_norm.weight")) {
      heads.q = p.layer_norm_heads("attn_q_norm", heads.q, d.h.head_dim, d.layer_norm_eps());
      heads.k = p.layer_norm_heads("attn_k_norm", heads.k, d.h.head_dim, d.layer_norm_eps());
    }
    const bool parallel = !p.has("ffn_norm.weight");
    const ValueId o = parallel ? d.attend(d.turn(heads, rope), d.scaled(), {&x, &n})
                               : d.attend(d.turn(heads, rope), d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_gated(parallel ? n : d.layer_norm("ffn_norm", x), ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.layer_norm("output_norm", x));
}

}  // namespace assay::model::arch
