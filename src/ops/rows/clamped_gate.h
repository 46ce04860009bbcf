// y[j] = g sigmoid(alpha g) (u + 1),  g = min(gate[j], limit), u = min(max(up[j], -limit), limit); f32, y may alias
// either: gpt-oss' gate. Bits: alpha and limit rounded once to f32; (g * num::sigmoid(alpha * g)) * (u + 1), each
// rounded once; NaNs stay. Source: OpenAI 2025, gpt-oss model card; Hugging Face transformers, modeling_gpt_oss.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct ClampedGate {
  ValueId gate, up;
  double alpha, limit;
  ValueId y;

  static constexpr const char* kKind = "clamped_gate";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(gate), f.reads(up), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

void clamped_gate_ref(const float* gate, const float* up, float alpha, float limit, int64_t n, float* y) noexcept;

}  // namespace assay::ops
