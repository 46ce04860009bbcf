// Multi-head latent attention: keys and values of all heads are made from one short vector a token, c, and one rotated
// key that all heads share. Two forms of the same numbers, as the file's tensors have it:
//   attn_k_b, attn_v_b  absorbed: every head's query is taken through attn_k_b, the cache keeps (c | k_rope) alone, a value is the c of its key, and what
//                       attention gives goes through attn_v_b;
//   attn_kv_b           expanded: keys (nope | rope) and values of every head are made and kept.
// Source: DeepSeek-V2, arXiv:2405.04434.
#pragma once

#include <optional>

#include "model/arch/indexer.h"

namespace assay::model::arch {

class LatentAttention {
 public:
  LatentAttention(const Decoder& decoder, Pairing pairing);

  // YaRN as these families have it: the file's multiplier scales scores and leaves cos and sin alone.
  ops::RopeId yarn_rope() const { return yarn_rope(pairing_); }
  ops::RopeId yarn_rope(Pairing pairing) const;
  double yarn_score_scale() const;  // 1 without YaRN or multiplier

  struct Rule {
    ops::RopeId rope;          // kNone: nothing turns
    double score_scale = 1;    // beside 1 / sqrt(elements of a head's key)
    double position_beta = 0;  // queries grow with the position (ops/rows/scale_by_position.h)
    int64_t position_period = 1;
    bool gated = false;          // each head's output times sigmoid(attn_gate x)
    Indexer* indexer = nullptr;  // null: all keys are attended to
  };
  // Begins the layer and attends; as Decoder::attend keeps of the residuals, in the last layer, what logits want.
  void begin_layer(int32_t layer) const;
  ops::ValueId attend(ops::ValueId x, const Rule& rule, std::initializer_list<ops::ValueId*> residuals) const;

 private:
  bool absorbed() const { return d_.p.has("attn_k_b.weight"); }
  int64_t d_value(int32_t layer) const;
  ops::ValueId query_latent(ops::ValueId x) const;  // kNone: the file has none
  ops::ValueId queries(ops::ValueId x, ops::ValueId latent) const;
  struct IndexInputs {
    ops::ValueId x, latent;
  };
  ops::ValueId attend_chosen(const Heads& heads, const AttentionRule& scaled, const IndexInputs& in, Indexer& indexer,
                             std::initializer_list<ops::ValueId*> residuals) const;
  Heads expanded_heads(ops::ValueId q_nope, ops::ValueId q_rope, ops::ValueId c, ops::ValueId k_rope) const;
  Heads absorbed_heads(ops::ValueId q_nope, ops::ValueId q_rope, ops::ValueId c, ops::ValueId k_rope) const;

  const Decoder& d_;
  Pairing pairing_;
  int64_t d_c_, d_key_, d_rope_;  // elements of c, of a head's key, and of these turned
};

// The whole of a model with latent attention (pairs), dense layers first, then experts beside shared ones.
struct LatentMixture {
  bool softmax_groups_by_best =
      false;  // where scores are a softmax, a group of experts is scored by its best, not by its two best
  ops::Gating gating = ops::Gating::softmax;      // where the file names none
  std::optional<Pairing> indexer = std::nullopt;  // layers choose their keys; how index queries and keys turn
  bool shared_indexers = false;                   // IndexerRule::shared
};
ops::ValueId latent_mixture(const ArchInput& input, PlanBuilder& p, const LatentMixture& mixture);

}  // namespace assay::model::arch
