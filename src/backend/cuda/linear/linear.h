// Matrix products on the device (contract: ops/linear/linear.h). y [n_tokens, rows of w] without gaps; bias f32 [rows] or null.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/linear/float_rows.h"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/runtime/queue.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

// Quantised weights; x: n_tokens rows, quantised as the format asks.
void linear_any_format(const Matrix& w, const quant::Activations& x, int64_t n_tokens, const float* bias, float* y, cudaStream_t stream);

// Several products of the same activations at once.
struct LinearTask {
  const Matrix* w = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
};
inline constexpr size_t kLinearsMax = 4;

// The same, fast for few tokens, for the formats whose blocks are cut into parts; false, and nothing done, where another is among them.
bool linear_gemv(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens, const Queue& queue);

// The same for many tokens, on the tensor cores; all matrices of one format.
bool linear_mma(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens, const Hopper& hopper, const Queue& queue);

// The same for several tokens, on Hopper; formats may differ.
inline constexpr int64_t kBatchTokensMax = 256;
bool linear_batch(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens, const Hopper& hopper, const Queue& queue);

// Float weights over x f32 [n_tokens, cols]: any width, any number of tokens; made for one (float_skinny.h and float_tiles.h for more).
void linear_float(const FloatRows& rows, int64_t cols, const float* x, int64_t n_tokens, cudaStream_t stream);

}  // namespace assay::backend::cuda
