// y[j] = x[j] * w[j / n],  n = width(x) / elements(w): a factor for each column, or for each run of columns (a head).
// f32, y may alias x. Bits: one product.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct ScaleColumns {
  ValueId x;
  WeightId w;
  ValueId y;

  static constexpr const char* kKind = "scale_columns";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(x), f.vector(w), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

}  // namespace assay::ops
