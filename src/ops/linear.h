// y[t, r] = sum_j w[r, j] x[t, j] + bias[r]
//   w: rows in any weight format; x f32 [n_tokens, k]; bias f32 [n_rows] or null; y f32 [n_tokens, n_rows].
// Bits: the dot of quant/activations.h, then the bias, one rounding; without a bias nothing is added.
//   Mode exact, quantised weights: dot/1 (dot_ref) over x quantised as the format says, with one or two planes.
//   Mode exact, float weights, and every weight in mode f32: dot_f32_ref over x itself.
//   One output's bits depend on its row and its token alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/activations.h"
#include "quant/format.h"

namespace assay::ops {

// One output. row: k elements of the format; x as its kind asks.
float linear_ref(const quant::Format& format, const std::byte* row, const quant::Activations& x, int64_t token,
                 const float* bias) noexcept;
float linear_f32_ref(const quant::Format& format, const std::byte* row, const float* x, int64_t k, const float* bias) noexcept;

}  // namespace assay::ops
