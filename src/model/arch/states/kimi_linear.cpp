// Kimi Linear: Kimi Delta Attention, and latent attention without rotation between such layers; experts beside shared
// ones. Source: arXiv:2510.26692.
#include "model/arch/latent.h"
#include "model/arch/states/gated_delta.h"
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {

ops::ValueId kimi_linear(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const KimiDelta delta(d, false);
  const LatentAttention latent(d, Pairing::pairs);
  const int64_t lead = d.leading_dense();
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    ValueId o;
    if (is_recurrent(d, layer)) {
      p.begin_layer(layer);
      o = delta.mix(d.rms("attn_norm", x));
      x = d.wanted("residual", x);
    } else {
      latent.begin_layer(layer);
      o = latent.attend(d.rms("attn_norm", x), {ops::kNone}, {&x});
    }
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, layer < lead ? d.ffn_gated(f, ops::ActivationFunction::silu) : d.mixture(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
