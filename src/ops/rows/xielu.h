// y[j] = x > 0:  a x^2 + beta x;  else  (e^min(x, eps) - 1 - x) b + beta x;  f32, y may alias x: Apertus' activation,
//   with numbers of its own in each layer. Bits: a, b, beta, eps rounded once to f32; x > 0: fma(a * x, x, beta * x);
//   else m = min(x, eps), fma(expm1(m) - x, b, beta * x) with expm1(m) = exp(m) - 1, below 1/2 in magnitude fma(m * m,
//   p(m), m) with the series' terms up to m^9.
// Source: Huang and Schlag 2024, arXiv:2411.13010; Apertus technical report, arXiv:2509.14233.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct Xielu {
  ValueId x;
  double a, b, beta, eps;
  ValueId y;

  static constexpr const char* kKind = "xielu";
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
