// The shared memory of a block of threads of batch tiles (tiles/batch_tile.cuh), and which form of them a product gets:
// columns of a tile, and how many blocks of threads share K. Known without a card, and by the kernels themselves.
//
//   superblocks   sums of the tree | activations | their sums of 16, where weights have minima | their scales | rings
//   blocks of 32  sums of the tree | activations, by lines of four blocks | their scales | their sums, likewise | rings
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/linear/block_parts.h"
#include "quant/activations.h"
#include "tensor/dtype.h"

namespace assay::backend::cuda {

inline constexpr int kBatchWarps = 8, kBatchRows = 32;  // of a block of threads; of weights, a warp's tile
inline constexpr int kBatchSharedMax = 227 * 1024;

// A tile has 8 * n columns, planes of tokens one after the other; a warp's ring so many stages. cluster blocks of
// threads share K, and so many are meant for a multiprocessor.
struct BatchForm {
  int planes = 1, n = 1, stages = 0, per_processor = 1, cluster = 1;

  constexpr int chunks() const { return 8 / cluster; }  // of a block of threads
  // Of the tree within a block.
  constexpr int levels() const { return chunks() == 1 ? 0 : chunks() == 2 ? 1 : chunks() == 4 ? 2 : 3; }
  constexpr int columns() const { return 8 * n; }
  constexpr int tokens() const { return 8 * (n / planes); }
  constexpr int sums_bytes() const {
    return std::max(levels(), 1) * kBatchWarps * (kBatchRows / 16 * (n / planes) * 32) * 16;
  }
  bool operator==(const BatchForm&) const = default;
};

// Where what comes behind the sums begins, for n blocks of weights of a block of threads.
struct BatchPlaces256 {
  int columns, group_sums, scales, rings;
  constexpr BatchPlaces256(BatchForm f, int n_blocks, bool has_min)
      : columns(f.sums_bytes()), group_sums(columns + n_blocks * f.columns() * 256),
        scales(group_sums + (has_min ? n_blocks * f.columns() * 32 : 0)),
        rings((scales + n_blocks * f.tokens() * 4 + 127) / 128 * 128) {}
};
struct BatchPlaces32 {
  static constexpr int kLine = 4;  // blocks
  static constexpr int lines_of(int n_blocks) { return (n_blocks + kLine - 1) / kLine; }
  int columns, scales, minima, rings;
  constexpr BatchPlaces32(BatchForm f, int n_blocks, bool has_min)
      : columns(f.sums_bytes()), scales(columns + lines_of(n_blocks) * f.columns() * 128),
        minima(scales + n_blocks * f.tokens() * 4),
        rings((minima + (has_min ? n_blocks * f.tokens() * 4 : 0) + 127) / 128 * 128) {}
};
// Of a row of weights in a stage: a superblock, or a line of blocks and their scales; 0: not of these tiles.
constexpr int batch_row_bytes(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::Q4_0: return 4 * kQ4_0Bytes + 16;
    case tensor::DType::Q4_1: return 4 * kQ4_1Bytes + 16;
    case tensor::DType::Q8_0: return 4 * kQ8_0Bytes + 16;
    case tensor::DType::Q4_K: return kQ4KBytes;
    case tensor::DType::Q5_K: return kQ5KBytes;
    case tensor::DType::Q6_K: return kQ6KRowBytes + 16;
    default: return 0;
  }
}
constexpr bool batch_has_min(tensor::DType dtype) {
  return dtype == tensor::DType::Q4_1 || dtype == tensor::DType::Q4_K || dtype == tensor::DType::Q5_K;
}

struct LinearProducts;
// Blocks of weights of a block of threads at most, and its shared memory, with matrices of these formats.
constexpr int batch_blocks_most(const BatchForm& form, int n_blocks) { return (n_blocks * form.chunks() + 7) / 8; }
int batch_bytes(const BatchForm& form, const LinearProducts& products) noexcept;

// The form for so many tokens: the one that their number asks for; of the clusters the first that gives the card work
// and fits. None: a matrix has too few rows, or one row is too long.
std::optional<BatchForm> batch_form(const LinearProducts& products, int64_t n_tokens, const Card& card) noexcept;

}  // namespace assay::backend::cuda
