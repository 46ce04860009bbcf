// EmbeddingGemma: Gemma 3's layers with tokens that all see one another, windows of both sides, and dense layers after
// the pooling. No head. Source: Vera et al. 2025, arXiv:2509.20354, and Hugging Face transformers' modeling_gemma3.
#include <cmath>

#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId gemma_embedding(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const AttentionRule rule = d.both_ways();
  const std::vector<bool> windowed = d.windowed_layers(6, true);
  const ops::RopeId rope_windowed =
      d.plain_rope(Pairing::halves, input.keys.find_positive("rope.freq_base_swa", 1e30).value_or(10000.0));
  const ops::RopeId rope_full = d.rope(Pairing::halves);
  ValueId x = d.embed(std::sqrt(static_cast<double>(d.h.d_model)));
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? d.window() : 0);
    const Heads heads = d.turn(d.norm_heads(d.project(d.rms("attn_norm", x))), local ? rope_windowed : rope_full);
    const ValueId o = d.attend(heads, rule, {&x});
    x = p.add("attn_residual", x, d.rms("post_attention_norm", o));
    const ValueId f = d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::gelu_tanh);
    x = p.add("residual", x, d.rms("post_ffw_norm", f));
  }
  p.end_layers();
  d.dense_layers();
  return d.no_logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
