// Products of float weights for a few tokens, from two on (contract: ops/linear/linear.h). Each weight is read once for
// 8 tokens.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/linear/float_rows.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

// x: [n_tokens, cols].
void linear_float_skinny(const FloatRows& rows, int64_t cols, const float* x, int64_t n_tokens, const Card& card,
                         const Queue& queue);

}  // namespace assay::backend::cuda
