// The table of decode's kernels: of one token, products that make the row they read for themselves (decode/decode.h).
//
//   name                       weights             card                kernel
//   router                     F32, routed         clusters of 16      experts/router.cu, the routes too
//   decode superblocks         Q4_K, Q5_K, Q6_K    any                 decode/decode_256.cu
//   decode blocks              Q4_0, Q4_1, Q8_0    any                 decode/decode_32.cu
//   decode floats              F32, F16, BF16      any                 decode/decode_float.cu
//   decode halves              F16, BF16, fast     room for six stages decode/fast_decode.cu, mode fast
//   decode halves, short rings the same            room for three      the same
//
// Rows of up to kDecodeWidthMax. The first row that takes a matrix wins; resolved once, when decode's groups are made
// (schedule/decode_groups.h). What starts a row's kernel is bound to it in decode/launch_decode.cpp.
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
  bool has_norm = false;                            // a norm right ahead makes the row
  bool is_routed = false;                           // what it makes are the logits of a choice of experts, alone
};

enum class DecodeKernel { superblocks, blocks, floats, halves, halves_of_short_rings, router };
inline constexpr int kNDecodeProducts = static_cast<int>(DecodeKernel::router);  // those of products alone

struct DecodeRow {
  std::string_view name;  // unique in the table
  DecodeKernel kernel;
  bool (*takes)(const DecodeMatrix& w, const Card& card) noexcept;
};

std::span<const DecodeRow> decode_table() noexcept;  // those of higher rank first
// The row for a matrix; null: decode has no kernel for it.
const DecodeRow* find_decode_row(const DecodeMatrix& w, const Card& card) noexcept;
// Whether a row takes it.
bool takes(const DecodeRow& row, const DecodeMatrix& w, const Card& card) noexcept;

// The shared memory of a block of threads of decode halves: the row rounded, the floats that its norm makes, a ring of
// stages for each warp.
struct DecodeHalvesPlaces {
  static constexpr int kWarps = 16;       // that multiply
  static constexpr int kStageBlocks = 2;  // blocks of 32 of each chunk of two rows
  static constexpr int kStageBytes = 16 * 64 * kStageBlocks;
  static constexpr int kStages = 6, kStagesShort = 3;  // of a ring

  int floats, rings;  // where they begin
  constexpr DecodeHalvesPlaces(int64_t cols, bool has_norm) noexcept
      : floats((row_bytes(static_cast<int>(cols / 32)) + 127) / 128 * 128),
        rings(floats + (has_norm ? static_cast<int>((cols + 255) / 256 * 256) * 4 : 0)) {}
  static constexpr int row_bytes(int n_blocks) noexcept { return (n_blocks + 8 + kStageBlocks) * 64; }
  constexpr int bytes(int stages) const noexcept { return rings + kWarps * stages * kStageBytes; }
};

// Of superblocks, in a model of this width: whether their products are so short that they disturb attention if they
// start beside it.
inline constexpr int kNarrow = 2048;
bool decode_is_narrow(tensor::DType dtype, int64_t width) noexcept;

// A router (experts/router.h): a cluster of 16 blocks of eight warps, a warp a row.
inline constexpr int64_t kRouterRowsMax = 16 * 8, kRouterColumnsMax = 2048;

}  // namespace assay::backend::cuda
