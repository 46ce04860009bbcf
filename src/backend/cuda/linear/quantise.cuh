// Quantising activations (quant/activations.h): a lane has 8 neighbouring elements.
#pragma once

#include "backend/cuda/rows/floats.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "quant/activations.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

// The lowest bytes of four words.
__device__ inline uint32_t low_bytes(const uint32_t (&w)[4]) {
  return __byte_perm(__byte_perm(w[0], w[1], 0x40), __byte_perm(w[2], w[3], 0x40), 0x5410);
}

// The planes of four elements of a block with factor r > 0. After adding 1.5 * 2^23 the integer is in the lowest byte.
// None of the contract's clamps acts: |x| is at most amax, so the first product rounds to 127 at most, and what it
// leaves, times 128, to 64.
__device__ inline void quantise_4(const float* x, float r, bool two, uint32_t& q, uint32_t& l) {
  constexpr float kMagic = 0x1.8p23f;  // num::rint_small
  uint32_t first[4], second[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float shifted = x[i] * r + kMagic;
    first[i] = __float_as_uint(shifted);
    if (two) second[i] = __float_as_uint(128.0f * num::fma(x[i], r, -(shifted - kMagic)) + kMagic);
  }
  q = low_bytes(first);
  if (two) l = low_bytes(second);
}

// A lane has the 8 elements from `at` on, a warp 256 neighbours. Every lane of the warp calls it; those without
// elements (`inside` false, whole blocks of activations at a time) write nothing.
template <int kBlock>
__device__ inline void quantise_8(const float (&x)[8], bool inside, const quant::Activations& out, int64_t at) {
  constexpr int kLanes = kBlock / 8, kSumLanes = kBlock == 256 ? 2 : 4;  // of a block, of a group that is summed
  const bool two = out.planes == 2;
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = max(amax, inside ? __float_as_uint(x[i]) & 0x7FFFFFFFu : 0u);
  if constexpr (kBlock == 256) {
    amax = warp_max(amax);
  } else {
#pragma unroll
    for (int width = 1; width < kLanes; width *= 2) amax = max(amax, __shfl_xor_sync(kWholeWarp, amax, width));
  }
  const quant::BlockScale scale = quant::block_scale(amax);
  uint32_t q[2] = {}, l[2] = {};
  if (scale.r != 0.0f) {
    quantise_4(x, scale.r, two, q[0], l[0]);
    quantise_4(x + 4, scale.r, two, q[1], l[1]);
  }
  constexpr int kOnes = 0x01010101;
  int q_sum = __dp4a(static_cast<int>(q[0]), kOnes, __dp4a(static_cast<int>(q[1]), kOnes, 0));
  int l_sum = __dp4a(static_cast<int>(l[0]), kOnes, __dp4a(static_cast<int>(l[1]), kOnes, 0));
#pragma unroll
  for (int width = 1; width < kSumLanes; width *= 2) {
    q_sum += __shfl_xor_sync(kWholeWarp, q_sum, width);
    l_sum += __shfl_xor_sync(kWholeWarp, l_sum, width);
  }
  if (!inside) return;
  const int lane = threadIdx.x % 32;
  *reinterpret_cast<uint2*>(out.q + at) = {q[0], q[1]};
  if (two) *reinterpret_cast<uint2*>(out.l + at) = {l[0], l[1]};
  if (lane % kLanes == 0) out.d[at / kBlock] = scale.d;
  if (lane % kSumLanes != 0) return;
  out.q_sums[at / (8 * kSumLanes)] = static_cast<int16_t>(q_sum);
  if (two) out.l_sums[at / (8 * kSumLanes)] = static_cast<int16_t>(l_sum);
}

}  // namespace assay::backend::cuda
