// What kernels that are filled by the copy engine share: the engine's view of a matrix, and the place in a ring of
// stages.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backend/cuda/runtime/hopper.h"

namespace assay::backend::cuda {

struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void next(int n_stages) {
    if (++stage == n_stages) stage = 0, phase ^= 1;
  }
};

// Bytes [n_rows, row_bytes] in boxes of box_rows x box_bytes; what lies outside is zeros. False: the driver refuses.
inline bool make_map(const Hopper& hopper, const void* base, int64_t row_bytes, int64_t n_rows, int box_bytes,
                     int box_rows, CUtensorMap& map) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(n_rows)},
                   strides[1] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_bytes), static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  const CUtensorMapSwizzle swizzle = box_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                     : box_bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                       : CU_TENSOR_MAP_SWIZZLE_NONE;
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(hopper.encode_map);
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(base), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace assay::backend::cuda
