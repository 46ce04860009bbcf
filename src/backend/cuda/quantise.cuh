// Quantising activations (quant/activations.h) with one thread an element.
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

}  // namespace assay::backend::cuda
