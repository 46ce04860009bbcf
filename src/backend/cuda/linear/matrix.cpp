// See matrix.h.
#include "backend/cuda/linear/matrix.h"

#include "backend/cuda/linear/block_parts.h"

namespace assay::backend::cuda {

PartBytes part_bytes(tensor::DType dtype, bool whole_blocks) noexcept {
  const auto whole = static_cast<int32_t>(tensor::traits(dtype).block_bytes);
  if (whole_blocks) return {{whole}, 1};
  switch (dtype) {
    case tensor::DType::Q4_0: return {{kQ4_0HeadBytes, kQ4_0Bytes}, 2};
    case tensor::DType::Q4_1: return {{kQ4_1HeadBytes, kQ4_1Bytes}, 2};
    case tensor::DType::Q8_0: return {{kQ8_0HeadBytes, kQ8_0Bytes}, 2};
    case tensor::DType::Q4_K: return {{kHeadBytes, kNibbleBytes}, 2};
    case tensor::DType::Q5_K: return {{kHeadBytes, kFifthBytes, kNibbleBytes}, 3};
    case tensor::DType::Q6_K: return {{kQ6KNibbleBytes, kQ6KPairBytes, kQ6KScaleBytes, kQ6KFactorBytes}, 4};
    default: return {{whole}, 1};
  }
}

}  // namespace assay::backend::cuda
