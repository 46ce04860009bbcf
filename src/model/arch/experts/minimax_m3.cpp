// MiniMax M3: norms of heads, gpt-oss's clamped gate in every feed-forward layer, experts by sigmoid beside shared
// ones. Layers with an indexer attend to the best attention.indexer.top_k blocks of keys: contexts end where these are
// all blocks that there are, for this build does not choose.
#include <fmt/format.h>

#include "model/arch/decoder.h"

namespace assay::model::arch {
namespace {

using ops::ValueId;

constexpr double kM3GateAlpha = 1.702, kM3GateLimit = 7.0;  // no keys

ValueId clamped_ffn(const Decoder& d, ValueId x, const std::string& ending, int64_t width) {
  PlanBuilder& p = d.p;
  const ValueId gate = p.linear("ffn_gate" + ending, x, width, Bias::optional),
                up = p.linear("ffn_up" + ending, x, width, Bias::optional);
  return p.linear("ffn_down" + ending, p.clamped_gate("ffn_act" + ending, gate, up, kM3GateAlpha, kM3GateLimit),
                  d.h.d_model, Bias::optional);
}

ValueId clamped_experts(const Decoder& d, ValueId x, const RouteRule& rule) {
  PlanBuilder& p = d.p;
  const ValueId routes = d.routes(x, rule);
  const int64_t n_used = p.width(routes) / 2, width = d.d_expert();
  const ExpertShape in{d.n_experts(), n_used, d.h.d_model, width};
  const ValueId gate = p.expert_linear("ffn_gate_exps", "ffn_gate_exps", x, routes, in),
                up = p.expert_linear("ffn_up_exps", "ffn_up_exps", x, routes, in);
  const ValueId act = p.clamped_gate("ffn_act_exps", gate, up, kM3GateAlpha, kM3GateLimit);
  const ValueId routed = p.expert_sum(
      "ffn_moe",
      p.expert_linear("ffn_down_exps", "ffn_down_exps", act, routes, {d.n_experts(), n_used, width, d.h.d_model}),
      routes, true);
  if (!p.has("ffn_up_shexp.weight")) return routed;
  return p.add("ffn_all", routed, clamped_ffn(d, x, "_shexp", p.rows_of("ffn_up_shexp.weight")));
}

// The indexers' tensors have no effect up to here.
void end_where_all_blocks_are_chosen(const Decoder& d) {
  const KeyReader& keys = d.input.keys;
  const int64_t top_k = keys.find_count("attention.indexer.top_k", 0, kContextMax).value_or(0);
  if (top_k == 0) return;
  const int64_t n = top_k * keys.count("attention.indexer.block_size", 1, kContextMax);
  if (n < d.h.n_ctx_train) d.p.set_n_ctx_max(n);
  for (int64_t layer = 0; layer < d.n_layers; ++layer) d.p.weights().ignore(fmt::format("blk.{}.indexer.", layer));
}

}  // namespace

ValueId minimax_m3(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  end_where_all_blocks_are_chosen(d);
  const int64_t lead = d.leading_dense();
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const ValueId o = d.attend(d.turn(d.norm_heads(d.project(d.rms("attn_norm", x))), rope), d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, layer < lead ? clamped_ffn(d, f, "", d.d_ff()) : clamped_experts(d, f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
