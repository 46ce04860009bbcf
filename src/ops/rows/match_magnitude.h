// y[j] = x[j] * (r(like) / max(r(x), eps)),  r the root of the mean square of the row: x as long as another row (Gemma
// 3n's streams). f32, y may alias x. Bits: squares by fma into Lanes32 over j ascending, folded, / d, sqrt, each
// rounded once; one quotient, one product. eps is rounded once to f32.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct MatchMagnitude {
  ValueId x, like;
  double eps;
  ValueId y;

  static constexpr const char* kKind = "match_magnitude";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(x), f.reads(like), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

}  // namespace assay::ops
