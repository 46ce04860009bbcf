// See matrix.h.
#include "backend/cuda/linear/matrix.h"

namespace assay::backend::cuda {

PartBytes part_bytes(tensor::DType dtype, bool whole_blocks) noexcept {
  const auto whole = static_cast<int32_t>(tensor::traits(dtype).block_bytes);
  if (whole_blocks) return {{whole}, 1};
  switch (dtype) {
    case tensor::DType::Q4_0: return {{2, 16}, 2};
    case tensor::DType::Q4_1: return {{4, 16}, 2};
    case tensor::DType::Q8_0: return {{2, 32}, 2};
    case tensor::DType::Q4_K: return {{16, 128}, 2};
    case tensor::DType::Q5_K: return {{16, 32, 128}, 3};
    case tensor::DType::Q6_K: return {{128, 64, 16, 2}, 4};
    default: return {{whole}, 1};
  }
}

}  // namespace assay::backend::cuda
