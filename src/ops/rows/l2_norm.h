// y[j] = x[j] / sqrt(sum_j x[j]^2 + eps), every run of d elements (a head) by itself: x, y f32, y may alias x; eps
// absolute. Bits: squares by fma into Lanes32 over j ascending, folded; + eps, sqrt, 1 / : each IEEE-rounded once; then
// x * r.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct L2Norm {
  ValueId x;
  float eps;
  int64_t d;
  ValueId y;

  static constexpr const char* kKind = "l2_norm";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(x), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

}  // namespace assay::ops
