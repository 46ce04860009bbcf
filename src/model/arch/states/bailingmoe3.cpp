// Ling 3: layers by Kimi Delta Attention with bounded decays, latent attention whose heads pass a gate, experts in
// groups beside shared ones, gates within a bound where the file has one.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "assay/error.h"
#include "model/arch/latent.h"
#include "model/arch/states/gated_delta.h"
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {
namespace {

using ops::ActivationFunction;
using ops::ValueId;

// Of each layer the bound of its gates, 0 where there is none. A bounded SwiGLU is min(silu(gate), bound) times up
// within bound of 0.
std::vector<double> bounds(const Decoder& d, const char* name) {
  constexpr double kNone = 1e-6, kLeast = 0.2785;  // above the depth of silu, so that its clamp below has no effect
  const std::string key = d.input.keys.key(name);
  std::vector<double> all(static_cast<size_t>(d.h.n_layers), 0.0);
  const auto found = d.input.keys.metadata().find_floats(key);
  if (!found) return all;
  if (found->size() != all.size())
    throw Error(Errc::bad_file,
                fmt::format("{}: needs {} values, one a layer, found {}", key, all.size(), found->size()));
  for (size_t layer = 0; layer < all.size(); ++layer) {
    const auto bound = static_cast<double>((*found)[layer]);
    if (!std::isfinite(bound) || bound < 0)
      throw Error(Errc::bad_file, fmt::format("{}: needs finite values from 0, found {}", key, bound));
    if (bound > kNone && bound < kLeast)
      throw Error(Errc::unsupported,
                  fmt::format("{} = {}: this build serves 0 and bounds from {}", key, bound, kLeast));
    all[layer] = bound > kNone ? bound : 0;
  }
  return all;
}

ValueId bounded_gate(PlanBuilder& p, const std::string& ending, ValueId gate, ValueId up, double bound) {
  const ValueId act = p.activate("ffn_silu" + ending, gate, ActivationFunction::silu);
  return p.product("ffn_act" + ending, p.clamp("ffn_silu_bounded" + ending, act, bound),
                   p.clamp("ffn_up_bounded" + ending, up, bound));
}

ValueId ffn(const Decoder& d, ValueId x, const std::string& ending, int64_t width, double bound) {
  PlanBuilder& p = d.p;
  if (bound == 0) return d.swiglu(x, ending, width);
  const ValueId gate = p.linear("ffn_gate" + ending, x, width, Bias::optional),
                up = p.linear("ffn_up" + ending, x, width, Bias::optional);
  return p.linear("ffn_down" + ending, bounded_gate(p, ending, gate, up, bound), d.h.d_model, Bias::optional);
}

ValueId experts(const Decoder& d, ValueId x, const RouteRule& rule, double bound) {
  PlanBuilder& p = d.p;
  if (bound == 0) return d.experts(x, rule);
  const ValueId routes = d.routes(x, rule);
  const int64_t n_used = p.width(routes) / 2, width = d.d_expert();
  const ExpertShape in{d.n_experts(), n_used, d.h.d_model, width}, out{d.n_experts(), n_used, width, d.h.d_model};
  const ValueId gate = p.expert_linear("ffn_gate_exps", "ffn_gate_exps", x, routes, in),
                up = p.expert_linear("ffn_up_exps", "ffn_up_exps", x, routes, in);
  const ValueId act = bounded_gate(p, "_exps", gate, up, bound);
  return p.expert_sum("ffn_moe", p.expert_linear("ffn_down_exps", "ffn_down_exps", act, routes, out), routes, true);
}

}  // namespace

ops::ValueId bailingmoe3(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  const std::vector<double> of_experts = bounds(d, "swiglu_clamp_exp"), of_others = bounds(d, "swiglu_clamp_shexp");
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
    const double bound = of_others[static_cast<size_t>(layer)];
    if (layer < lead) {
      x = p.add("residual", x, ffn(d, f, "", d.d_ff(), bound));
      continue;
    }
    ValueId y = experts(d, f, rule, of_experts[static_cast<size_t>(layer)]);
    if (p.has("ffn_up_shexp.weight"))
      y = p.add("ffn_all", y, ffn(d, f, "_shexp", p.rows_of("ffn_up_shexp.weight"), bound));
    x = p.add("residual", x, y);
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
