// Mamba and FalconMamba: one mixer a layer and nothing else; FalconMamba norms dt, B and C without weights. Source: Gu
// and Dao 2023, arXiv:2312.00752.
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {

ops::ValueId mamba(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  const Mamba mixer(d, input.keys.flag("ssm.dt_b_c_rms", false) ? Mamba::Norms::plain : Mamba::Norms::none);
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
