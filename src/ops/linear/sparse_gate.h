// y[j] = max(x[j] - c, 0),  c = mean(x) + factor * std(x) over the row, std with the row's length in the divisor: of a
// gate's values those well above the mean alone (Gemma 3n). f32, y may alias x. Bits: the mean by adding into Lanes32,
// folded, / d; squares of x - mean by fma into Lanes32, folded, / d, sqrt; c = fma(std, factor, mean), factor rounded
//   once to f32; one difference.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct SparseGate {
  ValueId x;
  double factor;
  ValueId y;

  static constexpr const char* kKind = "sparse_gate";
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
