// y[j] = cap * tanh(x[j] / cap); f32, y may alias x: logits that stay within +-cap.
// Bits: num::softcap, the cap rounded once to f32. Source: Gemma 2 technical report, arXiv:2408.00118.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct Softcap {
  ValueId x;
  double cap;  // above 0
  ValueId y;

  static constexpr const char* kKind = "softcap";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(x), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

void softcap_ref(const float* x, float cap, int64_t n, float* y) noexcept;

}  // namespace assay::ops
