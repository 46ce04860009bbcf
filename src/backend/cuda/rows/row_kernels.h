// The ops that work token by token, on the device; contracts: ops/*.h and quant/activations.h. Pointers are the
// device's, work is queued on the stream. Rows lie without gaps.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/kernels/unpack_table.h"
#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/plan/plan.h"
#include "ops/rows/activation.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

// By the table's row of kernels/unpack_table.h.
void embed(UnpackKernel by, const Matrix& table, const int32_t* tokens, int64_t n_tokens, float scale, float* y,
           const Queue& queue);
// The row of each token's position, or row `row` for all where it is not below 0.
void embed_position(UnpackKernel by, const Matrix& table, const int32_t* positions, int64_t row, int64_t n_tokens,
                    float* y, const Queue& queue);
void rms_norm(const float* x, const float* w, float eps, int64_t d, int64_t n_runs, float* y,
              cudaStream_t stream);  // w null: all 1

// table: row p is position p, dim / 2 cosines, then as many sines.
struct RopeShape {
  int64_t n_heads = 0, head_dim = 0, dim = 0;
  bool interleaved = true;
};
void rope(const float* x, const float* table, const int32_t* positions, int64_t n_tokens, const RopeShape& shape,
          float* y, cudaStream_t stream);
void add(const float* a, const float* b, int64_t n, float* y, cudaStream_t stream);
void select_rows(const float* x, const int32_t* rows, int64_t n_rows, int64_t width, float* y, cudaStream_t stream);

// Rows row_begin .. row_begin + n_rows of any matrix, decoded to f32, by its row of the same table.
void decode_rows(UnpackKernel by, const Matrix& matrix, int64_t row_begin, int64_t n_rows, float* out,
                 cudaStream_t stream);

// Cuts blocks of a file into parts; `blocks` is the file's bytes on the device.
void cut_blocks(const uint8_t* blocks, int64_t n_blocks, const Parts& parts, cudaStream_t stream);

}  // namespace assay::backend::cuda
