// gpt-oss: biases everywhere, sinks, every second layer through a window, YaRN whose corners are not rounded, experts
// by softmax over the chosen ones with a clamped gate. What the file calls post_attention_norm stands before the
// feed-forward layer. Source: OpenAI 2025, gpt-oss model card; transformers.
#include "model/arch/decoder.h"

namespace assay::model::arch {
namespace {

constexpr double kGateAlpha = 1.702, kGateLimit = 7.0;  // no keys

ops::ValueId experts(const Decoder& d, ops::ValueId x, ops::ValueId routes) {
  const int64_t n_used = d.p.width(routes) / 2, width = d.d_expert();
  const ExpertShape in{d.n_experts(), n_used, d.h.d_model, width};
  const ops::ValueId gate = d.p.expert_linear("ffn_gate_exps", "ffn_gate_exps", x, routes, in);
  const ops::ValueId up = d.p.expert_linear("ffn_up_exps", "ffn_up_exps", x, routes, in);
  const ops::ValueId act = d.p.clamped_gate("ffn_act_exps", gate, up, kGateAlpha, kGateLimit);
  const ops::ValueId down =
      d.p.expert_linear("ffn_down_exps", "ffn_down_exps", act, routes, {d.n_experts(), n_used, width, d.h.d_model});
  return d.p.expert_sum("ffn_moe", down, routes, true);
}

}  // namespace

ops::ValueId gpt_oss(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(2, true);
  const RouteRule rule = d.route_rule(ops::Gating::softmax_of_chosen, false);
  RopeScaling scaling = read_rope_scaling(input.keys, d.h);
  scaling.rounds_corners = false;
  const ops::RopeId rope_full = p.add_rope(make_rope(d.h.rope_dim, d.h.rope_theta, false, scaling));
  const ops::RopeId rope_windowed = p.add_rope(make_rope(d.h.rope_dim, d.rope_theta_windowed(), false, scaling));
  AttentionRule attention = d.scaled();
  attention.sinks = true;
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), local ? rope_windowed : rope_full);
    const ValueId o = d.attend(heads, attention, {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("post_attention_norm", x);
    x = p.add("residual", x, experts(d, f, d.routes(f, rule)));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
