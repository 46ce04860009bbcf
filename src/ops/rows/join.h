// y[t, i] = (a[t, i] | b[t, i]): runs (heads) of two values side by side, n_runs of them in a row; or (a[t, i] | b[t]),
// one run of b for all. f32. Bits: copies.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct Join {
  ValueId a, b;
  int64_t n_runs;
  ValueId y;

  static constexpr const char* kKind = "join";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = false;
  void fields(FieldVisitor& f) { f.reads(a), f.reads(b), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

}  // namespace assay::ops
