// Sums across a warp in the orders of the contract.
#pragma once

#include <cstdint>

namespace assay::backend::cuda {

inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;

// Lanes32 held one lane each, folded 16, 8, 4, 2, 1; the sum is lane 0's.
__device__ inline float fold_lanes(float lane) {
#pragma unroll
  for (int width = 16; width >= 1; width /= 2) lane = lane + __shfl_down_sync(kWholeWarp, lane, width);
  return lane;
}

__device__ inline uint32_t warp_max(uint32_t x) { return __reduce_max_sync(kWholeWarp, x); }

}  // namespace assay::backend::cuda
