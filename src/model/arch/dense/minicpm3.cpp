// MiniCPM3: attention over latents in a dense llama whose embeddings, block outputs and logits are scaled by numbers
// that the file has no keys for; LongRoPE as in phi3. Source: Hu et al. 2024, arXiv:2404.06395; Hugging Face,
// openbmb/MiniCPM3-4B, modeling_minicpm.
#include <cmath>

#include "model/arch/latent.h"

namespace assay::model::arch {

ops::ValueId minicpm3(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  constexpr double kEmbeddingScale = 12, kDepthScale = 1.4, kBaseWidth = 256;
  const double residual_scale = kDepthScale / std::sqrt(static_cast<double>(d.h.n_layers));
  const LatentAttention latent(d, Pairing::halves);
  const LatentAttention::Rule attention{d.long_rope(Pairing::halves)};
  ValueId x = d.embed(kEmbeddingScale);
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    latent.begin_layer(layer);
    const ValueId o = latent.attend(d.rms("attn_norm", x), attention, {&x});
    x = p.add("attn_residual", x, p.scale("attn_scaled", o, residual_scale));
    const ValueId f = d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::silu);
    x = p.add("residual", x, p.scale("ffn_scaled", f, residual_scale));
  }
  p.end_layers();
  return p.scale("output_scaled", d.logits(d.rms("output_norm", x)), kBaseWidth / static_cast<double>(d.h.d_model));
}

}  // namespace assay::model::arch
