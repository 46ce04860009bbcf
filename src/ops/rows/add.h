// y[j] = a[j] + b[j]; f32, y may alias either. Bits: one rounding each.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct Add {
  ValueId a, b;
  ValueId y;

  static constexpr const char* kKind = "add";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(a), f.reads(b), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

void add_ref(const float* a, const float* b, int64_t n, float* y) noexcept;

}  // namespace assay::ops
