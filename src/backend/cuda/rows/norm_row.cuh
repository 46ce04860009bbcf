// A row of a norm in shared memory, by a block of threads, and its integers.
#pragma once

#include "backend/cuda/linear/quantise.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/lanes.h"

namespace assay::backend::cuda {

// 1 / sqrt(mean of squares + eps) of a row in shared memory, for all threads of the block. Warp 0 is Lanes32.
__device__ inline float inverse_rms(const float* row, int d, float eps, float* broadcast) {
  if (threadIdx.x < 32) {
    float sum = 0.0f;
#pragma unroll 16
    for (int j = threadIdx.x; j < d; j += 32) sum = num::fma(row[j], row[j], sum);
    sum = fold_lanes(sum);
    if (threadIdx.x == 0) *broadcast = 1.0f / sqrtf(sum / static_cast<float>(d) + eps);
  }
  __syncthreads();
  const float r = *broadcast;
  __syncthreads();
  return r;
}

// Whole warps: those behind the row's end have nothing to write.
template <int kBlock>
__device__ inline void quantise_row(const float* row, int d, const quant::Activations& out, int64_t i_row) {
  for (int begin = 0; begin < d; begin += 8 * blockDim.x) {
    const int j = begin + 8 * threadIdx.x;
    if (j - 8 * static_cast<int>(threadIdx.x % 32) >= d) return;
    float x[8] = {};
    if (j < d) read_8(row + j, x);
    quantise_8<kBlock>(x, j < d, out, i_row * d + j);
  }
}

}  // namespace assay::backend::cuda
