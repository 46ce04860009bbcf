// y[t, i, j] = weight_i x[t, j], a row for each rank of a token: each rank's own input where a weight multiplies what goes into an expert (Llama 4).
// Bits: one product.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct ExpertScale {
  ValueId x, routes;
  int64_t n_used;
  ValueId y;

  static constexpr const char* kKind = "expert_scale";
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

}  // namespace assay::ops
