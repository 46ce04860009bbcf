// Puts a block together from its parts, for the kernels that work on any format.
#pragma once

#include <cstdint>

#include "backend/cuda/linear/matrix.h"

namespace assay::backend::cuda {

template <class Block>
__device__ inline Block load_block_of(const Parts& parts, int64_t i) {
  Block block;
  if constexpr (sizeof(Block) % 2 == 0) {
    auto* out = reinterpret_cast<uint16_t*>(&block);
    for (int p = 0; p < parts.n; ++p) {
      const auto* from = reinterpret_cast<const uint16_t*>(parts.base[p] + i * parts.bytes[p]);
      for (int j = 0; j < parts.bytes[p] / 2; ++j) *out++ = from[j];
    }
  } else {
    auto* out = reinterpret_cast<uint8_t*>(&block);
    for (int p = 0; p < parts.n; ++p) {
      for (int j = 0; j < parts.bytes[p]; ++j) *out++ = parts.base[p][i * parts.bytes[p] + j];
    }
  }
  return block;
}

}  // namespace assay::backend::cuda
