// See latent.h.
#include "model/arch/latent.h"

#include <fmt/format.h>

#include <cmath>

#include "assay/error.h"
#include "num/math64.h"

namespace assay::model::arch {
namespace {

using ops::kNone;
using ops::ValueId;

constexpr float kLatentEps = 1e-6f;  // of both latent norms, whatever the file says of the others (docs/numerics.md)

}  // namespace

LatentAttention::LatentAttention(const Decoder& decoder, Pairing pairing)
    : d_(decoder), pairing_(pairing), d_rope_(decoder.h.rope_dim) {
  const KeyReader& keys = d_.input.keys;
  if (d_.h.n_heads == 0) keys.count("attention.head_count", 1, kHeadsMax);  // says that it is missing
  d_c_ = keys.count("attention.kv_lora_rank", 1, kHeadDimMax);
  d_key_ = keys.find_count("attention.key_length_mla", 1, kHeadDimMax).value_or(d_.h.head_dim);
  if (d_key_ <= d_rope_) {
    throw Error(Errc::bad_file, fmt::format("{}: needs fewer elements than a head's key has ({}), found {}",
                                            keys.key("rope.dimension_count"), d_key_, d_rope_));
  }
}

// attention.value_length_mla; of older files attention.value_length, or what attn_kv_b has beside the keys.
int64_t LatentAttention::d_value(int32_t layer) const {
  const KeyReader& keys = d_.input.keys;
  if (const auto found = keys.find_count("attention.value_length_mla", 1, kHeadDimMax)) return *found;
  const std::string name = fmt::format("blk.{}.attn_kv_b.weight", layer);
  if (!d_.p.weights().has(name))
    return keys.count("attention.value_length_mla", 1, kHeadDimMax);  // says that it is missing
  const int64_t n = d_.n_heads(layer), rows = d_.p.weights().rows_of(name), left = rows / n - (d_key_ - d_rope_);
  if (rows % n != 0 || left < 1) {
    throw Error(Errc::bad_file, fmt::format("{}: needs rows of {} heads with more than {} each, found {} rows", name, n,
                                            d_key_ - d_rope_, rows));
  }
  return left;
}

ops::RopeId LatentAttention::yarn_rope(Pairing pairing) const {
  RopeScaling scaling = read_rope_scaling(d_.input.keys, d_.h);
  const bool has_multiplier = d_.input.keys.number("rope.scaling.yarn_log_multiplier", 0) != 0;
  // The magnitude is m(mscale) / m(mscale_all_dim), which is 1 in all public files, unless the file states another.
  const bool stated = d_.input.keys.metadata().has(d_.input.keys.key("rope.scaling.yarn_attn_factor"));
  if (scaling.kind == RopeScaling::Kind::yarn && has_multiplier && !stated) scaling.magnitude = 1;
  return d_.p.add_rope(make_rope(d_.h.rope_dim, d_.h.rope_theta, pairing == Pairing::pairs, scaling));
}

double LatentAttention::yarn_score_scale() const {
  const RopeScaling scaling = read_rope_scaling(d_.input.keys, d_.h);
  if (scaling.kind != RopeScaling::Kind::yarn || scaling.factor <= 1) return 1;
  const double m = d_.input.keys.number("rope.scaling.yarn_log_multiplier", 0) * num::log64(scaling.factor) +
                   1;  // the key is 0.1 mscale_all_dim
  return m * m;
}

void LatentAttention::begin_layer(int32_t layer) const {
  if (d_.n_heads(layer) == 0) {
    throw Error(Errc::bad_file,
                fmt::format("{}: layer {} needs heads, found 0", d_.input.keys.key("attention.head_count"), layer));
  }
  const bool keeps_c = d_.p.weights().has(fmt::format("blk.{}.attn_k_b.weight", layer));
  d_.p.begin_layer(layer, keeps_c ? ops::CacheLayer{1, d_c_ + d_rope_, 0, d_c_, true}
                                  : ops::CacheLayer{d_.n_heads(layer), d_key_, 0, d_value(layer)});
}

ValueId LatentAttention::query_latent(ValueId x) const {
  PlanBuilder& p = d_.p;
  if (!p.has("attn_q_a.weight")) return kNone;
  const int64_t rank = d_.input.keys.count("attention.q_lora_rank", 1, kWidthMax);
  return p.rms_norm("attn_q_a_norm", p.linear("attn_q_a", x, rank, Bias::optional), kLatentEps);
}

// [n_heads (nope | rope)]
ValueId LatentAttention::queries(ValueId x, ValueId latent) const {
  const int64_t n = d_.n_heads() * d_key_;
  return latent == kNone ? d_.p.linear("attn_q", x, n, Bias::optional)
                         : d_.p.linear("attn_q_b", latent, n, Bias::optional);
}

Heads LatentAttention::absorbed_heads(ValueId q_nope, ValueId q_rope, ValueId c, ValueId k_rope) const {
  PlanBuilder& p = d_.p;
  const int64_t n = d_.n_heads();
  return {p.join("attn_q_all", p.linear_heads("attn_k_b", q_nope, n, d_c_), q_rope, n, d_rope_),
          p.join("attn_k_all", c, k_rope, 1, d_rope_), kNone};
}

Heads LatentAttention::expanded_heads(ValueId q_nope, ValueId q_rope, ValueId c, ValueId k_rope) const {
  PlanBuilder& p = d_.p;
  const int64_t n = d_.n_heads(), nope = d_key_ - d_rope_, value = d_value(p.layer());
  const ValueId kv = p.linear("attn_kv_b", c, n * (nope + value), Bias::optional);
  const ValueId k = p.join("attn_k_all", p.slice("attn_k_nope", kv, n, 0, nope), k_rope, n, d_rope_);
  return {p.join("attn_q_all", q_nope, q_rope, n, d_rope_), k, p.slice("attn_v", kv, n, nope, value)};
}

// Keys and values are stored first: the layers of the cache stand in the order of their stores.
ValueId LatentAttention::attend_chosen(const Heads& heads, const AttentionRule& scaled, const IndexInputs& in,
                                       Indexer& indexer, std::initializer_list<ValueId*> residuals) const {
  PlanBuilder& p = d_.p;
  p.kv_store("kv_store", heads.k, heads.v);
  const ValueId chosen = indexer.choose(in.x, in.latent);
  return d_.attended(p.sparse_attention("attention", heads.q, chosen, d_.n_heads(), scaled.scale), residuals);
}

ValueId LatentAttention::attend(ValueId x, const Rule& rule, std::initializer_list<ValueId*> residuals) const {
  PlanBuilder& p = d_.p;
  const int64_t n = d_.n_heads(), nope = d_key_ - d_rope_;
  const ValueId latent = query_latent(x);
  if (rule.indexer != nullptr && latent == kNone) {
    throw Error(
        Errc::bad_file,
        fmt::format(
            "blk.{}.attn_q_a.weight: the file has no tensor of this name, of whose latent index queries are made",
            p.layer()));
  }
  const ValueId q = queries(x, latent);
  const auto turned = [&](const char* name, ValueId part) {
    return rule.rope == kNone ? part : p.rope(name, part, rule.rope, d_rope_);
  };
  const ValueId q_nope = p.slice("attn_q_nope", q, n, 0, nope),
                q_rope = turned("attn_q_rope", p.slice("attn_q_pe", q, n, nope, d_rope_));
  const ValueId c = p.rms_norm("attn_kv_a_norm",
                               p.linear_rows("attn_kv_a_c", "attn_kv_a_mqa", x, d_c_ + d_rope_, 0, d_c_), kLatentEps);
  const ValueId k_rope =
      turned("attn_k_rope", p.linear_rows("attn_k_pe", "attn_kv_a_mqa", x, d_c_ + d_rope_, d_c_, d_rope_));
  Heads heads = absorbed() ? absorbed_heads(q_nope, q_rope, c, k_rope) : expanded_heads(q_nope, q_rope, c, k_rope);
  if (rule.position_beta != 0)
    heads.q = p.scale_by_position("attn_q_scaled", heads.q, rule.position_beta, rule.position_period, 0);
  const AttentionRule scaled{rule.score_scale / std::sqrt(static_cast<double>(d_key_))};
  const ValueId o = rule.indexer == nullptr ? d_.attend_heads(heads, scaled, residuals)
                                            : attend_chosen(heads, scaled, {x, latent}, *rule.indexer, residuals);
  const ValueId values = absorbed() ? p.linear_heads("attn_v_b", o, n, d_value(p.layer())) : o;
  if (!rule.gated) return d_.attn_output(values);
  const ValueId gate = d_.wanted("attn_gate", p.linear("attn_gate", x, n, Bias::optional));
  return d_.attn_output(p.gate("attn_gated", gate, values, ops::ActivationFunction::sigmoid));
}

ValueId latent_mixture(const ArchInput& input, PlanBuilder& p, const LatentMixture& mixture) {
  const Decoder d(input, p);
  const LatentAttention latent(d, Pairing::pairs);
  std::optional<Indexer> indexer;
  if (mixture.indexer) indexer.emplace(d, IndexerRule{latent.yarn_rope(*mixture.indexer), mixture.shared_indexers});
  const int64_t original =
      input.keys.find_count("rope.scaling.original_context_length", 1, kContextMax).value_or(d.h.n_ctx_train);
  const LatentAttention::Rule attention{
      latent.yarn_rope(),
      latent.yarn_score_scale(),
      input.keys.number("attention.temperature_scale", 0),
      input.keys.find_count("attention.temperature_length", 1, kContextMax).value_or(original),
      false,
      indexer ? &*indexer : nullptr};
  const int64_t lead = d.leading_dense();
  const bool has_experts = input.keys.find_count("expert_count", 0, ops::kExpertsMax).value_or(0) > 0;
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    latent.begin_layer(layer);
    const ValueId o = latent.attend(d.rms("attn_norm", x), attention, {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    if (layer < lead || !has_experts) {
      x = p.add("residual", x, d.ffn_gated(f, ops::ActivationFunction::silu));
      continue;
    }
    RouteRule rule = d.route_rule(mixture.gating, false);
    rule.group_by_best = mixture.softmax_groups_by_best && rule.gating == ops::Gating::softmax;
    x = p.add("residual", x, d.mixture(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
