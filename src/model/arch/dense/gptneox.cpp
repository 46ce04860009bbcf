// GPT-NeoX and Pythia: LayerNorm and biases, partial rotation, attention and FFN side by side (or one after the other,
// by a key), GELU by the error function. Source: Black et al. 2022, arXiv:2204.06745.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId gptneox(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const bool parallel = input.keys.flag("use_parallel_residual", true);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.project(d.layer_norm("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    const ValueId between = p.add("attn_residual", x, o);
    const ValueId f = d.ffn_plain(d.layer_norm("ffn_norm", parallel ? x : between), ops::ActivationFunction::gelu_erf);
    x = p.add("residual", between, f);
  }
  p.end_layers();
  return d.logits(d.layer_norm("output_norm", x));
}

}  // namespace assay::model::arch
