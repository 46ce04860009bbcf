// Rotary position embedding: pairs (a, b) of a head's first dim elements turn by an angle that grows with the position.
//   y[a] = x[a] cos - x[b] sin,  y[b] = x[a] sin + x[b] cos,  angle of pair i = position * inverse_frequency[i]
//   Which elements are pair i, and the frequencies with their scaling: RopeSpec in ops/plan/plan.h. Elements from dim
//     on pass through.
// Bits: angle, cos and sin in double by num/math64.h, times magnitude, rounded once to f32: tables made once on the
//   host and shared by every device. y[a] = fma(x[a], cos, -(x[b] * sin)), y[b] = fma(x[a], sin, x[b] * cos).
// Source: Su et al. 2021, arXiv:2104.09864.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct Rope {
  ValueId x;
  RopeId rope;
  int64_t n_heads, head_dim;
  ValueId y;

  static constexpr const char* kKind = "rope";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = true;
  void fields(FieldVisitor& f) { f.reads(x), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

// The angles of one position: cos and sin, dim / 2 floats each.
void rope_angles(const RopeSpec& spec, int64_t position, float* cos, float* sin) noexcept;

// One head: x, y f32 [head_dim], y may alias x.
void rope_ref(const float* x, const float* cos, const float* sin, int64_t dim, bool interleaved, int64_t head_dim,
              float* y) noexcept;

}  // namespace assay::ops
