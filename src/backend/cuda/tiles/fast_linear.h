// Products of mode `fast` (docs/numerics.md, section 7): F16 and BF16 weights on the float tensor cores, activations
// rounded to the weights' type, sums in float32. Both kernels below add in the same order: 16 elements of K by one
// instruction, ascending within a chunk of the contract, then the contract's tree. So their bits are equal among
// themselves, not with the CPU's. Quantised weights: fast_blocks.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/linear/float_rows.h"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/plan/plan.h"
#include "ops/rows/activation.h"

namespace assay::backend::cuda {

inline constexpr size_t kFastRowsMax = 4;  // runs of rows multiplied together

// x: [n_tokens, cols]. All runs of one type, which are_fast_halves. Any number of tokens; reads each weight once for
// tile_tokens of them: 8, 16 or 32, of a row `fast skinny` of the table (kernels/float_table.h).
void fast_skinny(std::span<const FloatRows> runs, int tile_tokens, int64_t cols, const float* x, int64_t n_tokens,
                 const Queue& queue);

// x rounded to the type of the weights, 2 bytes each; n elements.
void round_to(tensor::DType dtype, const float* x, int64_t n, void* halves, const Queue& queue);
// activation(gate) * up rounded so; y: the same as floats, null: nobody reads it. n a multiple of 4.
void gate_to(tensor::DType dtype, const float* gate, const float* up, ops::ActivationFunction activation, int64_t n,
             float* y, void* halves, const Queue& queue);
// The same products for many tokens, on Hopper, halves from round_to.
void fast_tiles(std::span<const FloatRows> runs, int64_t cols, const void* halves, int64_t n_tokens,
                const Hopper& hopper, const Queue& queue);

}  // namespace assay::backend::cuda
