// Quantised weights in mode `fast`: each is decoded to float32 as its format says (quant/format.h) and rounded to half
// precision, to nearest even; then it is multiplied as a weight of F16 is (fast_linear.h), so the bits are those of the
// same matrix in F16.
//
//   skinny  blocks ──► halves in a warp's shared memory ──► mma         fast_skinny_blocks, formats cut into parts
//   many    blocks ──► halves of some rows in memory ──► fast_tiles     blocks_to_halves, every format
//
// Half precision, not BF16: 11 bits hold every integer of 4 to 8 bits times its scale to 2^-12, where 8 bits would lose
// what Q6_K and Q8_0 keep. What is beyond its 65,504 becomes infinite, as an activation does.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/kernels/unpack_table.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/runtime/queue.h"
#include "backend/cuda/tiles/fast_linear.h"
#include "ops/plan/executor.h"
#include "tensor/dtype.h"

namespace assay::backend::cuda {

// Rows of a matrix, of n_rows from row_begin on, as halves, one after the other; 16 aligned bytes for each 8 elements.
// Any format that fast_decodes, by its row of kernels/unpack_table.h.
void blocks_to_halves(UnpackKernel by, const Matrix& w, int64_t row_begin, int64_t n_rows, void* halves,
                      const Queue& queue);

// fast_skinny of matrices that are cut into parts, all of one format. x: [n_tokens, cols]. tile_tokens: 8, 16 or 32, or
// 1 for one token of up to kFastOneColumnsMax columns (kernels/float_table.h).
void fast_skinny_blocks(std::span<const LinearTask> linears, int tile_tokens, const float* x, int64_t n_tokens,
                        const Queue& queue);

}  // namespace assay::backend::cuda
