// y[j] = x[j] / sqrt(mean_j x[j]^2 + eps) * w[j]
//   One run of d elements (a token's row, or one head of it): x, y f32 [d], y may alias x; w f32 [d]; eps absolute
//     (hparam norm_eps).
// Bits: squares by fma into Lanes32 over j ascending, folded 16, 8, 4, 2, 1; / d, + eps, sqrt, 1 / : each IEEE-rounded
//   once; then (x * r) * w in that order, or x * r where there are no weights. One run's bits depend on that run alone.
// Source: Zhang and Sennrich 2019, arXiv:1910.07467.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct RmsNorm {
  ValueId x;
  WeightId w;  // kNone: all 1
  float eps;
  int64_t d;  // every run of d elements of a row on its own
  ValueId y;

  static constexpr const char* kKind = "rms_norm";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(x), f.vector(w), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

void rms_norm_ref(const float* x, const float* w, float eps, int64_t d, float* y) noexcept;

}  // namespace assay::ops
