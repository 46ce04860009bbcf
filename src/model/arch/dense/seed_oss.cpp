// Seed-OSS: biases on queries, keys and values; what the file calls post_attention_norm stands before the feed-forward
// layer.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId seed_oss(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_gated(d.rms("post_attention_norm", x), ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
