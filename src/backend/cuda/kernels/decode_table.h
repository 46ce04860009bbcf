// The table of decode's kernels: of one token, products that make the row they read for themselves (decode/decode.h).
//
//   name                weights             kernel
//   decode superblocks  Q4_K, Q5_K, Q6_K    decode/decode_256.cu
//   decode blocks       Q4_0, Q4_1, Q8_0    decode/decode_32.cu
//   decode floats       F32, F16, BF16      decode/decode_float.cu
//   decode halves       F16, BF16, fast     decode/fast_decode.cu, mode fast
//
// Rows of up to kDecodeWidthMax, on every card. A router's product with its norm and routes has a kernel of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/kernels/limits.h"
#include "quant/activations.h"
#include "tensor/dtype.h"

namespace assay::backend::cuda {

struct DecodeMatrix {
  tensor::DType dtype = tensor::DType::F32;
  int64_t rows = 0, cols = 0;
  quant::Activation kind = quant::Activation::f32;  // as the product reads its row
  bool is_fast = false;                             // on the float tensor cores
};

enum class DecodeKernel { superblocks, blocks, floats, halves };

struct DecodeRow {
  std::string_view name;
  DecodeKernel kernel;
  bool (*takes)(const DecodeMatrix& w) noexcept;
};

std::span<const DecodeRow> decode_table() noexcept;
// The row for a matrix; null: decode has no kernel for it.
const DecodeRow* find_decode_row(const DecodeMatrix& w) noexcept;

// Of superblocks, in a model of this width: whether their products are so short that they disturb attention if they
// start beside it.
inline constexpr int kNarrow = 2048;
bool decode_is_narrow(tensor::DType dtype, int64_t width) noexcept;

// A router (experts/router.h): a cluster of eight blocks of 16 warps, a warp a row.
inline constexpr int64_t kRouterRowsMax = 8 * 16, kRouterColumnsMax = 2048;
bool router_serves(int64_t n_experts, int64_t cols, const Card& card) noexcept;

}  // namespace assay::backend::cuda
