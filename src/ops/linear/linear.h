// y[t, r] = sum_j w[r, j] x[t, j] + bias[r]
//   w: rows in any weight format; x f32 [n_tokens, k]; bias f32 [n_rows] or null; y f32 [n_tokens, n_rows].
// Bits: the dot of quant/activations.h, then the bias, one rounding; without a bias nothing is added.
//   Mode exact, quantised weights: dot/1 (dot_ref) over x quantised as the format says, with one or two planes.
//   Mode exact, float weights, and every weight in mode f32: dot_f32_ref over x itself.
//   One output's bits depend on its row and its token alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/plan/plan.h"
#include "quant/activations.h"
#include "quant/format.h"

namespace assay::ops {

struct Linear {
  ValueId x;
  WeightId w;     // [width(y), width(x)]
  WeightId bias;  // kNone or f32 [width(y)]
  ValueId y;
  // Of a shard, where some chunks of the contract meet just its own columns of x: all rows of the whole matrix, those
  // columns alone. An executor may sum these instead, if the shards then add their sums by the contract's tree.
  WeightId columns = kNone;

  static constexpr const char* kKind = "linear";
  static constexpr Role kRole = Role::product;
  void fields(FieldVisitor& f) { f.reads(x), f.matrix(w), f.vector(bias), f.writes(y), f.matrix(columns); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
};

// One output. row: k elements of the format; x as its kind asks.
float linear_ref(const quant::Format& format, const std::byte* row, const quant::Activations& x, int64_t token,
                 const float* bias) noexcept;
float linear_f32_ref(const quant::Format& format, const std::byte* row, const float* x, int64_t k,
                     const float* bias) noexcept;

}  // namespace assay::ops
