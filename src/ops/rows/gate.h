// y[j] = activation(gate[j / n]) * up[j], n = width(up) / width(gate): the middle of a gated feed-forward layer (n =
// 1), a gate for each head or for a whole row. f32, y may alias either where n = 1, else up. Bits: the activation as in
// num/math.h, the product rounded once. Source: Shazeer 2020, arXiv:2002.05202.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"
#include "ops/rows/activation.h"

namespace assay::ops {

struct Gate {
  ValueId gate, up;
  ActivationFunction activation;
  ValueId y;

  static constexpr const char* kKind = "gate";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(gate), f.reads(up), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

using GateFunction = void (*)(const float* gate, const float* up, int64_t n, float* y) noexcept;
GateFunction gate_ref(ActivationFunction activation) noexcept;

}  // namespace assay::ops
