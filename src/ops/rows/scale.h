// y[j] = x[j] * factor; f32, y may alias x. Bits: the factor rounded once to f32, one product.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct Scale {
  ValueId x;
  double factor;  // a double for the oracle's sake
  ValueId y;

  static constexpr const char* kKind = "scale";
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
