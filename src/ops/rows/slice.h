// y[t, i w + j] = x[t, i s + first + j], j < w: some columns of every one of n_runs runs (heads, layers) of a row; s =
// width(x) / n_runs, w = width(y) / n_runs. f32. Bits: copies.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct Slice {
  ValueId x;
  int64_t n_runs, first;
  ValueId y;

  static constexpr const char* kKind = "slice";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = false;
  void fields(FieldVisitor& f) { f.reads(x), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

}  // namespace assay::ops
