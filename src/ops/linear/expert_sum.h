// y[t, j] = sum over ranks i of weight_i x[t, i, j], a row of x for each rank of a token  (weights and ranks:
// ops/linear/route.h); f32.
// Bits: weight_0 * x_0, then fma(weight_i, x_i, .) over the ranks ascending; without weights x_0, then + x_i.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct ExpertSum {
  ValueId x, routes;
  int64_t n_used;
  bool weighted;
  ValueId y;

  static constexpr const char* kKind = "expert_sum";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = false;
  static constexpr bool kRowsAlike = false;
  void fields(FieldVisitor& f) { f.reads(x), f.reads(routes), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

// One token's rows: x [n_used][d], y [d]; weights null: plain sums.
void expert_sum_ref(const float* x, const float* weights, int64_t n_used, int64_t d, float* y) noexcept;

}  // namespace assay::ops
