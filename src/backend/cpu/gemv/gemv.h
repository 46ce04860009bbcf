// The matrix-vector kernels of each instruction set: weights stream from memory once, row after row, in the file's own
// layout.
//
//   a row of weights  | chunk 0 | chunk 1 | ..  | chunk 7 |    of contract dot/1, some blocks each, as they lie in the file
//   step s              block s   block s         block s      of its chunk: one block of every chunk
//   a register          lane 0    lane 1    ..    lane 7       integers of 8 blocks -> 8 float terms -> one fma onto 8 chains
//   behind the last     the tree over the 8 lanes              y[token, row]
//
//   weights       memory, read once, fetched ahead             activations   scratch, in the order of the steps (gemv_prepare.h)
//   chains        registers, up to 4 columns (planes x tokens) at a time
#pragma once

#include "backend/cpu/gemv/gemv_prepare.h"

namespace assay::backend::cpu {

// Rows [row_begin, row_end) against the operand's tokens; token: where they stand in the task.
using GemvKernel = void (*)(const LinearTask& task, const GemvOperand& x, int64_t token, int64_t row_begin,
                            int64_t row_end) noexcept;

// Null where there is no kernel for the format. Formats with blocks of 32.
GemvKernel gemv_a32_avx2(tensor::DType dtype) noexcept;
bool joins_planes_avx2(tensor::DType dtype) noexcept;  // whether that kernel reads GemvOperand::joined
GemvKernel gemv_a32_avx512(tensor::DType dtype) noexcept;
// Superblocks of 256.
GemvKernel gemv_a256_avx2(tensor::DType dtype) noexcept;
GemvKernel gemv_a256_avx512(tensor::DType dtype) noexcept;
// Both kinds.
GemvKernel gemv_neon(const LinearTask& task) noexcept;

}  // namespace assay::backend::cpu
