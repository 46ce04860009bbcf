// y[j] = x[j] + w[j]: a bias of its own for each column, where no product has it. f32, y may alias x. Bits: one sum.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct AddColumns {
  ValueId x;
  WeightId w;
  ValueId y;

  static constexpr const char* kKind = "add_columns";
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
