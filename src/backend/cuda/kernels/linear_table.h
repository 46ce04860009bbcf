// The table of the GPU's products of quantised weights with activations as integers. A row is a kernel and what it
// takes:
//
//   name          weights      formats at once   tokens    card                        kernel
//   group tiles   superblocks  one, or with Q6_K 17..256   Hopper                      tiles/batch_wgmma.cu, 64 or 128 columns
//   batch tiles   any cut      any               2..256    Hopper                      tiles/batch_256.cu, batch_32.cu
//   ...
//
// Products of the same activations are one kernel where a row takes them together, the first that does; else each has
// the first row that takes it alone. Behind the last stands the kernel that takes every format. Resolved once, when a
// plan is lowered for a card, into ranges of tokens: nothing chooses again while it runs. Known on machines without a
// card; what starts a row's kernel is bound to it in linear/launch_linear.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cuda/kernels/batch_layout.h"
#include "backend/cuda/kernels/card.h"
#include "backend/cuda/kernels/limits.h"
#include "lower/token_ranges.h"
#include "quant/activations.h"
#include "tensor/dtype.h"

namespace assay::backend::cuda {

using lower::kAnyTokens;

struct LinearMatrix {
  tensor::DType dtype = tensor::DType::F32;
  int64_t rows = 0;
  bool is_cut = false;  // its blocks are cut into parts (linear/matrix.h)
};
// Products of the same activations: 1 .. kLinearsMax matrices.
struct LinearProducts {
  std::span<const LinearMatrix> matrices;
  quant::Activation kind = quant::Activation::a32;  // a32: blocks of 32; a256: superblocks
  int planes = 2;
  int64_t cols = 0;

  int64_t n_blocks() const noexcept { return cols / (kind == quant::Activation::a256 ? 256 : 32); }
};

enum class LinearKernel { group_tiles, batch_tiles, vector, tiles, any_format };
inline constexpr size_t kNLinearKernels = 5;

struct LinearRow {
  std::string_view name;  // unique in the table
  LinearKernel kernel;
  int64_t tokens_min, tokens_max;
  // Of products with so many tokens, within the row's.
  bool (*takes)(const LinearProducts& products, int64_t n_tokens, const Card& card) noexcept;
  int columns = 0;  // of a tile of superblocks; 0: it has none
};

std::span<const LinearRow> linear_table() noexcept;  // those of higher rank first
const LinearRow* find_linear_row(std::string_view name) noexcept;
// Whether it takes these products together.
bool takes(const LinearRow& row, const LinearProducts& products, int64_t n_tokens, const Card& card) noexcept;

// What runs products with some numbers of tokens.
struct LinearRange {
  int64_t tokens_min = 1, tokens_max = kAnyTokens;
  const LinearRow* together = nullptr;                  // of all; null: each has its own
  std::array<const LinearRow*, kLinearsMax> each = {};  // by matrix
  std::array<BatchForm, kLinearsMax> forms = {};        // of rows of batch tiles: by matrix, the first where together

  const LinearRow& of(size_t i_matrix) const noexcept { return together != nullptr ? *together : *each[i_matrix]; }
  bool chooses_as(const LinearRange& other) const noexcept {
    return together == other.together && each == other.each && forms == other.forms;
  }
};

// The kernels of a group of products, by the number of tokens.
class LinearChoice : public lower::TokenRanges<LinearRange> {
 public:
  LinearChoice(const LinearProducts& products, const Card& card);
  const LinearRange& at(int64_t n_tokens) const noexcept { return range_at(n_tokens); }
};

// Bytes of shared memory that the tiles for every card have (tiles/mma_32.cu, mma_256.cu); 0: they do not know the
// format.
int tile_bytes(tensor::DType dtype, int planes) noexcept;

}  // namespace assay::backend::cuda
