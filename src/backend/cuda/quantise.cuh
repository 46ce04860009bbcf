// Quantising activations (quant/activations.h) with one thread an element, or a lane 8 neighbouring ones where there are many.
#pragma once

#include "backend/cuda/warp.cuh"
#include "quant/activations.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

// Blocks of 32 are warps, blocks of 256 eight neighbouring warps, elements in the order of the threads; `at` is the element's index in all
// rows. Every thread of the block of threads calls it; those without an element (`inside` false, whole blocks of activations at a time) write
// nothing.
struct SharedScales {
  uint32_t maxima[32];        // of the warps
  quant::BlockScale scale[4];  // of the blocks of 256
};
template <int kBlock>
__device__ inline void quantise_element(float value, bool inside, const quant::Activations& out, int64_t at, SharedScales& shared) {
  constexpr int kGroup = kBlock == 256 ? 16 : 32;
  const int lane = threadIdx.x % 32;
  uint32_t amax = warp_max(__float_as_uint(value) & 0x7FFFFFFFu);
  quant::BlockScale scale;
  if constexpr (kBlock == 256) {
    const int warp = threadIdx.x / 32;
    if (lane == 0) shared.maxima[warp] = amax;
    __syncthreads();
    if (threadIdx.x % 256 == 0) {  // one thread a block: divisions are long
#pragma unroll
      for (int i = 1; i < 8; ++i) amax = max(amax, shared.maxima[warp + i]);
      shared.scale[warp / 8] = quant::block_scale(amax);
    }
    __syncthreads();
    scale = shared.scale[warp / 8];
  } else {
    scale = quant::block_scale(amax);
  }
  const float first = scale.r == 0.0f ? 0.0f : quant::first_plane(value, scale.r);
  const float second = scale.r == 0.0f || out.planes != 2 ? 0.0f : quant::second_plane(value, scale.r, first);
  const int q = static_cast<int>(first), l = static_cast<int>(second);
  int sums = q * 65536 + l;  // both sums in one word: each stays within 16 bits
#pragma unroll
  for (int width = kGroup / 2; width >= 1; width /= 2) sums += __shfl_xor_sync(kWholeWarp, sums, width);
  if (!inside) return;
  if (at % kBlock == 0) out.d[at / kBlock] = scale.d;
  out.q[at] = static_cast<int8_t>(q);
  if (out.planes == 2) out.l[at] = static_cast<int8_t>(l);
  if (lane % kGroup != 0) return;
  const int l_sum = static_cast<int16_t>(sums & 0xFFFF);
  out.q_sums[at / kGroup] = static_cast<int16_t>((sums - l_sum) / 65536);
  if (out.planes == 2) out.l_sums[at / kGroup] = static_cast<int16_t>(l_sum);
}

// The lowest bytes of four words.
__device__ inline uint32_t low_bytes(const uint32_t (&w)[4]) { return __byte_perm(__byte_perm(w[0], w[1], 0x40), __byte_perm(w[2], w[3], 0x40), 0x5410); }

// The planes of four elements of a block with factor r > 0. After adding 1.5 * 2^23 the integer is in the lowest byte. None of the contract's
// clamps acts: |x| is at most amax, so the first product rounds to 127 at most, and what it leaves, times 128, to 64.
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

// A lane has the 8 elements from `at` on, a warp 256 neighbours. Every lane of the warp calls it; those without elements (`inside` false, whole
// blocks of activations at a time) write nothing.
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

__device__ inline void read_8(const float* from, float (&x)[8]) {
  const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w, x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}
__device__ inline void write_8(float* to, const float (&x)[8]) {
  reinterpret_cast<float4*>(to)[0] = {x[0], x[1], x[2], x[3]};
  reinterpret_cast<float4*>(to)[1] = {x[4], x[5], x[6], x[7]};
}

}  // namespace assay::backend::cuda
