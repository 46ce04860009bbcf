// Quantising a block of activations by one warp (quant/activations.h).
#pragma once

#include "backend/cuda/warp.cuh"
#include "quant/activations.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

// Lane j of the warp holds elements j, j + 32, ... of block `block` of all rows.
template <int kBlock>
__device__ inline void quantise_block(const float (&value)[kBlock / 32], const quant::Activations& out, int64_t block) {
  constexpr int kPerLane = kBlock / 32, kGroup = kBlock == 256 ? 16 : 32;
  const int lane = threadIdx.x % 32;
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) amax = max(amax, __float_as_uint(value[i]) & 0x7FFFFFFFu);
  const quant::BlockScale scale = quant::block_scale(warp_max(amax));
  if (lane == 0) out.d[block] = scale.d;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const float first = scale.r == 0.0f ? 0.0f : quant::first_plane(value[i], scale.r);
    const float second = scale.r == 0.0f || out.planes != 2 ? 0.0f : quant::second_plane(value[i], scale.r, first);
    const int q = static_cast<int>(first), l = static_cast<int>(second);
    const int64_t at = block * kBlock + 32 * i + lane;
    out.q[at] = static_cast<int8_t>(q);
    if (out.planes == 2) out.l[at] = static_cast<int8_t>(l);
    // Both sums in one word: each stays within 16 bits. Groups of 16 are the halves of the warp.
    int sums = q * 65536 + l;
#pragma unroll
    for (int width = kGroup / 2; width >= 1; width /= 2) sums += __shfl_xor_sync(kWholeWarp, sums, width);
    if (lane % kGroup == 0) {
      const int l_sum = static_cast<int16_t>(sums & 0xFFFF);
      out.q_sums[at / kGroup] = static_cast<int16_t>((sums - l_sum) / 65536);
      if (out.planes == 2) out.l_sums[at / kGroup] = static_cast<int16_t>(l_sum);
    }
  }
}

}  // namespace assay::backend::cuda
