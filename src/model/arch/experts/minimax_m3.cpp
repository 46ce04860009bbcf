// MiniMax M3: norms of heads, gpt-oss's clamped gate in every feed-forward layer, experts by sigmoid beside shared
// ones. Layers with an indexer attend to the best attention.indexer.top_k blocks of keys, a choice for each KV head.
// Source: Hugging Face transformers 5.24, modeling_minimax_m3_vl.
#include <fmt/format.h>

#include <optional>
#include <string>

#include "assay/error.h"
#include "model/arch/decoder.h"
#include "ops/attention/choose_keys.h"

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

struct BlockIndexer {
  int64_t n_heads, head_dim;
  BlockRule rule;
};

// None where no context that the model was trained for has more blocks than are chosen: the indexers' tensors have no
// effect then, and contexts end where they would have.
std::optional<BlockIndexer> find_indexer(const Decoder& d) {
  const KeyReader& keys = d.input.keys;
  const int64_t top_k = keys.find_count("attention.indexer.top_k", 0, kContextMax).value_or(0);
  if (top_k == 0) return std::nullopt;
  const int64_t n_block = keys.count("attention.indexer.block_size", 1, kContextMax);
  if (top_k * n_block >= d.h.n_ctx_train) {
    for (int64_t layer = 0; layer < d.n_layers; ++layer) d.p.weights().ignore(fmt::format("blk.{}.indexer.", layer));
    d.p.set_n_ctx_max(top_k * n_block);
    return std::nullopt;
  }
  if (top_k * n_block > ops::kKeysChosenMax) {
    throw Error(Errc::unsupported,
                fmt::format("{} = {}: {} blocks of {} are more than the {} keys that are served",
                            keys.key("attention.indexer.top_k"), top_k, top_k, n_block, ops::kKeysChosenMax));
  }
  BlockIndexer found{keys.count("attention.indexer.head_count", 1, kHeadsMax),
                     keys.count("attention.indexer.key_length", 1, kHeadDimMax),
                     {n_block, top_k, keys.find_count("attention.indexer.local_blocks", 0, top_k).value_or(0)}};
  if (found.head_dim < d.h.rope_dim) {
    throw Error(Errc::bad_file, fmt::format("{}: needs the {} elements that turn ({}), found {}",
                                            keys.key("attention.indexer.key_length"), d.h.rope_dim,
                                            keys.key("rope.dimension_count"), found.head_dim));
  }
  d.p.set_n_ctx_max(ops::kChoicePositionsMax);
  return found;
}

// A KV head is a layer of the cache by itself, beside one of index keys for all of them: each attends to keys of its
// own.
void begin_blocks(const Decoder& d, int32_t layer, const BlockIndexer& of) {
  const KeyReader& keys = d.input.keys;
  if (d.n_heads(layer) == 0) keys.count("attention.head_count", 1, kHeadsMax);  // says that it is missing
  if (const int64_t n_kv_heads = d.h.n_kv_heads_of[static_cast<size_t>(layer)]; of.n_heads != n_kv_heads) {
    throw Error(Errc::unsupported, fmt::format("{} = {}: needs one for each of {} KV heads",
                                               keys.key("attention.indexer.head_count"), of.n_heads, n_kv_heads));
  }
  d.p.begin_layer(layer, {1, d.h.head_dim, 0, d.h.value_dim});
}

ValueId attend_to_blocks(const Decoder& d, ValueId x, const Heads& heads, ops::RopeId rope, const BlockIndexer& of,
                         ValueId* residual) {
  PlanBuilder& p = d.p;
  const int64_t n_kv_heads = d.n_kv_heads(), n_group = d.n_heads() / n_kv_heads, d_k = d.h.head_dim,
                d_v = d.h.value_dim;
  const int32_t layer = p.layer();
  const auto turned = [&](const std::string& part, int64_t n) {
    const ValueId made = p.linear("indexer." + part + "_proj", x, n * of.head_dim, Bias::optional);
    const ValueId normed = p.rms_norm_heads("indexer." + part + "_norm", made, of.head_dim, d.h.norm_eps);
    return p.rope("indexer." + part + "_rope", normed, rope, of.head_dim);
  };
  const ValueId index_q = turned("q", n_kv_heads), index_k = turned("k", 1);
  ValueId all = ops::kNone;
  int32_t index_cache = ops::kNone;
  for (int64_t head = 0; head < n_kv_heads; ++head) {
    const auto own = [&](const char* name, ValueId of_all, int64_t width) {
      return n_kv_heads == 1 ? of_all : p.slice(fmt::format("{}_{}", name, head), of_all, 1, head * width, width);
    };
    if (head > 0) p.begin_layer(layer, {1, d_k, 0, d_v});
    const ValueId q = own("attn_q_of", heads.q, n_group * d_k), k = own("attn_k_of", heads.k, d_k),
                  v = own("attn_v_of", heads.v, d_v);
    p.kv_store(fmt::format("kv_store_{}", head), k, v);
    if (head == 0) index_cache = p.index_store("indexer.store", index_k);
    const ValueId chosen = p.choose_blocks(fmt::format("indexer.choice_{}", head),
                                           own("indexer.q_of", index_q, of.head_dim), index_cache, of.rule);
    const ValueId o = p.sparse_attention(fmt::format("attention_{}", head), q, chosen, n_group, d.scaled().scale);
    all = head == 0 ? o : p.join(fmt::format("attention_up_to_{}", head), all, o, 1, n_group * d_v);
  }
  return d.attn_output(d.attended(all, {residual}));
}

}  // namespace

ValueId minimax_m3(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  const std::optional<BlockIndexer> indexer = find_indexer(d);
  const int64_t lead = d.leading_dense();
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool chooses = indexer && p.weights().has(fmt::format("blk.{}.indexer.q_proj.weight", layer));
    chooses ? begin_blocks(d, layer, *indexer) : d.begin_layer(layer);
    const ValueId n = d.rms("attn_norm", x);
    const Heads heads = d.turn(d.norm_heads(d.project(n)), rope);
    const ValueId o = chooses ? attend_to_blocks(d, n, heads, rope, *indexer, &x) : d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, layer < lead ? clamped_ffn(d, f, "", d.d_ff()) : clamped_experts(d, f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
