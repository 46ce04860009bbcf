// y[j] = x[j] * s(p),  s(p) = 1 + beta ln(1 + floor((p + offset) / period)),  p the position of the row's token; f32, y
// may alias x. Queries grow with the length of the context: Ministral 3 (offset 0) and Llama 4 (offset 1). Bits: s in
// double by num/math64.h, rounded once to f32; one product.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct ScaleByPosition {
  ValueId x;
  double beta;
  int64_t period, offset;
  ValueId y;

  static constexpr const char* kKind = "scale_by_position";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(x), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

double position_scale(double beta, int64_t period, int64_t offset, int64_t position) noexcept;

}  // namespace assay::ops
