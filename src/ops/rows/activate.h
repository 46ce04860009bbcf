// y[j] = activation(x[j]); f32, y may alias x: the middle of a feed-forward layer without a gate, or a gate's values
// where another op multiplies them. Bits: the activation as in num/math.h and num/activations.h.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"
#include "ops/rows/activation.h"

namespace assay::ops {

struct Activate {
  ValueId x;
  ActivationFunction activation;
  ValueId y;

  static constexpr const char* kKind = "activate";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(x), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

using ActivateFunction = void (*)(const float* x, int64_t n, float* y) noexcept;
ActivateFunction activate_ref(ActivationFunction activation) noexcept;

}  // namespace assay::ops
