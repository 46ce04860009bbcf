// y[j] = min(max(x[j], -limit), limit); f32, y may alias x. Bits: of x or of the limit, rounded once to f32; a NaN
// stays one.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct Clamp {
  ValueId x;
  double limit;  // above 0
  ValueId y;

  static constexpr const char* kKind = "clamp";
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
