// Mamba 2 and Mamba-Codestral: one mixer a layer and nothing else. Source: Dao and Gu 2024, arXiv:2405.21060.
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {

ops::ValueId mamba2(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  const Mamba2 mixer(d, d.h.norm_eps);
  ops::ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    p.begin_layer(layer);
    const ops::ValueId o = mixer.mix(d.rms("attn_norm", x));
    x = p.add("residual", d.wanted("residual", x), o);
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
