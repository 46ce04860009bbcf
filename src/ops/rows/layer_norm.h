// y[j] = (x[j] - m) / sqrt(mean_j (x[j] - m)^2 + eps) * w[j] + b[j],  m = mean_j x[j]
//   One run of d elements (a token's row, or one head of it): x, y f32 [d], y may alias x; w, b f32 [d] or [width], or
//     none; eps absolute.
// Bits: the sum by adding into Lanes32 over j ascending, folded 16, 8, 4, 2, 1, / d: m. c[j] = x[j] - m; squares of c
//   by fma into Lanes32, folded; / d, + eps, sqrt, 1 / : each rounded once; then (c * r), * w, + b in that order, where
//   they are. One run's bits depend on that run alone.
// Source: Ba, Kiros and Hinton 2016, arXiv:1607.06450.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct LayerNorm {
  ValueId x;
  WeightId w, bias;  // kNone: all 1, all 0
  float eps;
  int64_t d;  // every run of d elements of a row on its own
  ValueId y;
  bool by_column = false;  // w and bias have an element for each column of a row: each run its own

  static constexpr const char* kKind = "layer_norm";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(x), f.vector(w), f.vector(bias), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

void layer_norm_ref(const float* x, const float* w, const float* bias, float eps, int64_t d, float* y) noexcept;

}  // namespace assay::ops
