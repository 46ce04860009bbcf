// Matrix products on the device (contract: ops/linear/linear.h). y [n_tokens, rows of w] without gaps; bias f32 [rows]
// or null.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/kernels/batch_layout.h"
#include "backend/cuda/kernels/limits.h"
#include "backend/cuda/linear/float_rows.h"
#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/runtime/queue.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

// Quantised weights; x: n_tokens rows, quantised as the format asks.
void linear_any_format(const Matrix& w, const quant::Activations& x, int64_t n_tokens, const float* bias, float* y,
                       cudaStream_t stream);

// Several products of the same activations at once.
struct LinearTask {
  const Matrix* w = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
};

// Each takes what its rows of the table take (kernels/linear_table.h), for one token or more.
// Few tokens; formats whose blocks are cut into parts, any of one kind together.
void linear_gemv(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens,
                 const Queue& queue);
// Many tokens, on the tensor cores; all matrices of one such format.
void linear_mma(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens, const Queue& queue);
// The same on Hopper; of superblocks Q6_K may go with one other format, in tiles of 64 or 128 columns.
void linear_wgmma(std::span<const LinearTask> linears, int columns, const quant::Activations& x, int64_t n_tokens,
                  const Hopper& hopper, const Queue& queue);
// Several tokens, on Hopper; formats may differ. form: batch_form() of these products.
void linear_batch(std::span<const LinearTask> linears, const BatchForm& form, const quant::Activations& x,
                  int64_t n_tokens, const Queue& queue);

// Float weights over x f32 [n_tokens, cols]: any width, any number of tokens; made for one (float_skinny.h and
// float_tiles.h for more).
void linear_float(const FloatRows& rows, int64_t cols, const float* x, int64_t n_tokens, cudaStream_t stream);

}  // namespace assay::backend::cuda
