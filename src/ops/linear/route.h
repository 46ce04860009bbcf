// Which experts a token goes to, and with which weights. From E logits of a router: scores, a choice of the k best,
// their weights.
//   y[t] = (weight of rank 0, .., weight of rank k - 1, expert of rank 0, .., expert of rank k - 1); experts are whole
//     numbers, as floats.
//   scores: softmax over all E (Gating::softmax), sigmoid, sqrt(softplus), or softmax over the k chosen logits
//     (softmax_of_chosen).
//   choice: the k largest of score + bias (of the logit itself for softmax_of_chosen, + bias), in descending order, the
//     lower expert first among equals. With groups E is cut into n_groups runs; a group's score is the sum of its two
//     best (or its best), and only experts of the n_groups_used best groups take part. The logits themselves are the
//     scores of sparse_mixer.
//   weight: the score without bias; of sparse_mixer the chosen logit's share in a softmax over the logits s near it:
//     those of the experts that no earlier rank took, but not where (m - s) / max(|s|, m) > near, m the chosen one's.
//     Normalised: / (sum over the ranks + least_sum); * scale; * the expert's own scale, where experts have one.
// Bits: near: a difference, a quotient. softmax: m = maximum; e = exp(s - m); the sum of e by adding into Lanes32,
//   folded; e / sum. Sums over ranks ascending from the first. Each operation rounded once. A NaN among the scores
//   makes every weight NaN and takes experts 0 .. k - 1. A token's row depends on its own logits alone.
// Source: Shazeer et al. 2017, arXiv:1701.06538; DeepSeek-V3, arXiv:2412.19437 (bias, groups); Liu et al. 2024,
// arXiv:2409.12136 (sparse_mixer).
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

enum class Gating { softmax, sigmoid, softmax_of_chosen, sqrt_softplus, sparse_mixer };

struct Route {
  ValueId logits;
  WeightId bias;  // f32 [E], for choosing alone; kNone: none
  Gating gating;
  int64_t n_used;  // k
  bool normalise;
  double scale;
  ValueId y;  // [2 k]
  int64_t n_groups = 1, n_groups_used = 1;
  bool group_by_best = false;      // a group's score is its best expert's, not the sum of its two best
  WeightId expert_scales = kNone;  // f32 [E]
  double least_sum = 1e-20;        // rounded once to f32
  double near = 0.02;              // of sparse_mixer, rounded once to f32

  static constexpr const char* kKind = "route";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = false;
  void fields(FieldVisitor& f) { f.reads(logits), f.vector(bias), f.vector(expert_scales), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

// The expert of a rank, in a token's row of routes; without routes (null) rank i goes to expert i.
template <class T>
int64_t expert_of(const T* routes, int64_t n_used, int64_t rank) noexcept {
  return routes == nullptr ? rank : static_cast<int64_t>(routes[n_used + rank]);
}

// Experts at most, so that a row's scores fit on the stack.
inline constexpr int64_t kExpertsMax = 4096;

}  // namespace assay::ops
