// Nomic's BERT with experts: every so many layers, from the second on, the feed-forward layer is a choice of experts by
// softmax, whose weights are not normalised; the others are BERT's. GELU by the error function. No head.
// Source: Nussbaum and Duderstadt 2025, arXiv:2502.07972.
#include "model/arch/decoder.h"

namespace assay::model::arch {
namespace {

using ops::ValueId;

// Experts without a gate.
ValueId plain_experts(const Decoder& d, ValueId x, const RouteRule& rule) {
  PlanBuilder& p = d.p;
  const ValueId routes = d.routes(x, rule);
  const int64_t n_used = p.width(routes) / 2, width = d.d_expert();
  const ExpertShape in{d.n_experts(), n_used, d.h.d_model, width}, out{d.n_experts(), n_used, width, d.h.d_model};
  const ValueId up = p.expert_linear("ffn_up_exps", "ffn_up_exps", x, routes, in);
  const ValueId act = p.activate("ffn_act_exps", up, ops::ActivationFunction::gelu_erf);
  return p.expert_sum("ffn_moe", p.expert_linear("ffn_down_exps", "ffn_down_exps", act, routes, out), routes, true);
}

}  // namespace

ValueId nomic_bert_moe(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  const AttentionRule attention = d.both_ways();
  const RouteRule rule = d.route_rule(ops::Gating::softmax, false);
  const int64_t period = input.keys.count("moe_every_n_layers", 1, kLayersMax);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.layer_norm("token_embd_norm", d.add_token_type(d.embed()));
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const ValueId o = d.attend(d.turn(d.project(x), rope), attention, {&x});
    x = d.layer_norm("attn_output_norm", p.add("attn_residual", x, o));
    const ValueId f =
        layer % period == 1 ? plain_experts(d, x, rule) : d.ffn_plain(x, ops::ActivationFunction::gelu_erf);
    x = d.layer_norm("layer_output_norm", p.add("residual", x, f));
  }
  p.end_layers();
  return d.no_logits(x);
}

}  // namespace assay::model::arch
