// Rows of float weights on the device: 8 of them widened at a time, and the sum of what four lanes of a chunk have
// made.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backend/cuda/runtime/warp.cuh"
#include "num/f16.h"

namespace assay::backend::cuda {

struct Bf16 {
  uint16_t bits;
};
__device__ inline float widened(__half x) { return __half2float(x); }
__device__ inline float widened(Bf16 x) { return num::bf16_to_float(x.bits); }

// 16 bytes as 8 floats.
template <class W>
__device__ inline void widen_8(uint4 words, float (&out)[8]) {
  const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<W, Bf16>) {
      out[2 * i] = __uint_as_float(w[i] << 16);
      out[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
    } else {
      out[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(w[i] & 0xFFFFu)));
      out[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(w[i] >> 16)));
    }
  }
}

// The group's 4 x 8 lanes folded 16, 8, 4, 2, 1, then the tree over the 8 groups.
__device__ inline float fold_and_tree(const float (&lane)[8]) {
  float part[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) part[i] = lane[i] + __shfl_xor_sync(kWholeWarp, lane[i], 2);
#pragma unroll
  for (int i = 0; i < 8; ++i) part[i] = part[i] + __shfl_xor_sync(kWholeWarp, part[i], 1);
#pragma unroll
  for (int width = 4; width >= 1; width /= 2) {
#pragma unroll
    for (int i = 0; i < width; ++i) part[i] = part[i] + part[i + width];
  }
  float sum = part[0];
#pragma unroll
  for (int width = 4; width <= 16; width *= 2) sum = sum + __shfl_xor_sync(kWholeWarp, sum, width);
  return sum;
}

}  // namespace assay::backend::cuda
