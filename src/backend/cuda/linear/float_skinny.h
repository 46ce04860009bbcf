// Products of float weights for a few tokens, from two on (contract: ops/linear/linear.h). Each weight is read once for
// up to 8 tokens.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/linear/float_rows.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

// x: [n_tokens, cols]. form: of a row `float skinny` of the table, whose shared memory the card has.
void linear_float_skinny(const FloatRows& rows, const FloatForm& form, int64_t cols, const float* x, int64_t n_tokens,
                         const Queue& queue);

}  // namespace assay::backend::cuda
