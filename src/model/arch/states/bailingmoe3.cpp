// Ling 3: layers by Kimi Delta Attention with bounded decays, latent attention whose heads pass a gate, experts in
// groups beside shared ones.
#include <fmt/format.h>

#include "assay/error.h"
#include "model/arch/latent.h"
#include "model/arch/states/gated_delta.h"
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {
namespace {

void refuse_clamps(const ArchInput& input) {
  for (const char* name : {"swiglu_clamp_exp", "swiglu_clamp_shexp"}) {
    const std::string key = input.keys.key(name);
    if (!input.keys.metadata().has(key)) continue;
    throw Error(Errc::unsupported, fmt::format("{}: this build does not serve models that bound their gates", key));
  }
}

}  // namespace

ops::ValueId bailingmoe3(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  refuse_clamps(input);
  const Decoder d(input, p);
  const KimiDelta delta(d, true);
  const LatentAttention latent(d, Pairing::pairs);
  LatentAttention::Rule attention{latent.yarn_rope(), latent.yarn_score_scale()};
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
      attention.gated = p.has("attn_gate.weight");
      o = latent.attend(d.rms("attn_norm", x), attention, {&x});
    }
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, layer < lead ? d.ffn_gated(f, ops::ActivationFunction::silu) : d.mixture(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
