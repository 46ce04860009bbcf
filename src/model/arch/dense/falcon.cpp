// Falcon: attention and FFN side by side, on one LayerNorm (7B) or two (attn_norm_2 is attention's), GELU by the error
// function. Source: Almazrouei et al. 2023, arXiv:2311.16867.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId falcon(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    ValueId n = d.layer_norm("attn_norm", x);
    const ValueId of_attention = p.has("attn_norm_2.weight") ? d.layer_norm("attn_norm_2", x) : n;
    const ValueId o = d.attend(d.turn(d.project(of_attention), rope), d.scaled(), {&x, &n});
    const ValueId f = d.ffn_plain(n, ops::ActivationFunction::gelu_erf);
    x = p.add("residual", p.add("attn_residual", x, o), f);
  }
  p.end_layers();
  return d.logits(d.layer_norm("output_norm", x));
}

}  // namespace assay::model::arch
