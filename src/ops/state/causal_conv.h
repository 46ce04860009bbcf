// y[t, c] = sum_k w[c, k] x[t - K + 1 + k, c] + bias[c],  k < K: a convolution of every column by itself over a token
// and the K - 1 before it; what lies before the sequence is 0. x, y f32 [n_tokens, d], w f32 [d, K], bias f32 [d] or
// none. State: the last K - 1 rows of x, by units of 32 columns: [K - 1][32], what lies beyond d stays 0. Bits: a chain
// of fma(w[c, k], x, .) over k ascending from +0, then + bias, one rounding. Source: Gu and Dao 2023, arXiv:2312.00752,
// section 3.4 (of width 4); Poli et al. 2023, arXiv:2302.10866.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"
#include "ops/state/state.h"

namespace assay::ops {

inline constexpr int64_t kConvColumns = 32;  // of a unit
inline constexpr int64_t kConvKernelMax = 64;

// One unit: n <= 32 columns of n_tokens rows, stride elements from row to row. w [n, kernel]; bias [n] or null; state
// [kernel - 1][32]. y must not overlap x.
void causal_conv_ref(const float* x, int64_t n_tokens, int64_t stride, const float* w, const float* bias,
                     int64_t kernel, int64_t n, float* state, float* y) noexcept;

struct CausalConv {
  ValueId x;
  WeightId w, bias;  // bias: or kNone
  int32_t state;
  ValueId y;

  static constexpr const char* kKind = "causal_conv";
  static constexpr Role kRole = Role::state;
  void fields(FieldVisitor& f) { f.reads(x), f.vector(w), f.vector(bias), f.state(state), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, const StateRun<float>& at, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, const StateRun<double>& at, int64_t begin, int64_t end) const noexcept;

  // The same by a kernel with the reference's bits.
  void run_by(decltype(&causal_conv_ref) unit, const HostRows<float>& rows, const StateRun<float>& at, int64_t begin,
              int64_t end) const noexcept;

  static StateLayer state_of(int64_t d, int64_t kernel) noexcept {
    return {(d + kConvColumns - 1) / kConvColumns, (kernel - 1) * kConvColumns};
  }
};

}  // namespace assay::ops
