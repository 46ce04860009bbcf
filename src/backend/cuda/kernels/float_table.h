// The table of the GPU's products of float weights, and of all weights that mode fast multiplies as halves or BF16.
//
//   name                        mode   weights        tokens  card    kernel
//   float tiles, 16 tokens      exact  rows of 256..  49..    Hopper  tiles/float_tiles.cu
//   float tiles                 exact  rows of 256..  49..    Hopper  the same, of 64
//   float skinny, 8 tokens      exact  rows of 32 n   5..     any     linear/float_skinny.cu
//   float skinny, 4 tokens      exact  rows of 32 n   3..     any     the same
//   float skinny, 2 tokens      exact  rows of 32 n   2..     any     the same
//   floats                      exact  any            1..     any     linear/linear_float.cu
//   fast tiles                  fast   halves         65..    Hopper  tiles/fast_wgmma.cu
//   fast tiles of decoded rows  fast   blocks         65..    Hopper  the same; tiles/fast_halves.cu decodes
//   fast skinny of blocks       fast   blocks, cut    1..     any     tiles/fast_skinny_blocks.cu
//   fast skinny of decoded rows fast   blocks         1..     any     tiles/fast_skinny.cu, rows decoded
//   fast skinny                 fast   halves         1..     any     tiles/fast_skinny.cu
//
// Tiles of 16 tokens are for products whose whole tiles would be fewer than half of the multiprocessors. Float skinny
// has a row with short rings behind each, for cards that lack the shared memory. Each of the last three is a row for
// tiles of 8, 16 and 32 tokens; of blocks one more has one token's row in shared memory.
//
// Quantised weights of mode f32 are decoded to floats, part by part, and have the rows of exact. The first row that
// takes a matrix wins; resolved once, into ranges of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/kernels/linear_table.h"
#include "lower/token_ranges.h"
#include "ops/plan/executor.h"
#include "tensor/dtype.h"

namespace assay::backend::cuda {

inline constexpr int64_t kFloatSkinnyTokensMax = 48;  // up to here float skinny is faster than tiles
inline constexpr int64_t kFastSkinnyTokensMax = 64;   // likewise
inline constexpr int kFastOneColumnsMax = 28 << 10;   // of blocks, one token: halves beside the stages, on every card

constexpr bool are_skinny_columns(int64_t cols) noexcept { return cols % 32 == 0 && cols < int64_t{1} << 24; }
constexpr bool are_tile_columns(int64_t cols) noexcept { return are_skinny_columns(cols) && cols >= 256; }
// Halves and BF16.
constexpr bool are_fast_halves(tensor::DType dtype, int64_t cols) noexcept {
  return (dtype == tensor::DType::F16 || dtype == tensor::DType::BF16) && are_skinny_columns(cols);
}
// Whether mode fast multiplies such a matrix, and in which type.
bool is_multiplied_fast(const ops::ExecutorOptions& options, tensor::DType dtype, int64_t cols) noexcept;
constexpr tensor::DType fast_type(tensor::DType dtype) noexcept {
  return dtype == tensor::DType::BF16 ? dtype : tensor::DType::F16;
}
// Whether it must be decoded for that.
bool fast_decodes(tensor::DType dtype) noexcept;

// Exact products of many tokens: rows and tokens of a tile, and floats of weights that are packed at a time.
inline constexpr int64_t kFloatTileRows = 128, kFloatTileTokens = 64, kFloatTileTokensFew = 16;
inline constexpr int64_t kFloatsPackedMax = 64 << 20;

// Tokens of a tile; of float skinny, stages of a chunk's ring.
struct FloatForm {
  int tokens = 0, depth = 0;
  // Of a block of threads of float skinny, with weights of so many bytes: rings of 8 chunks, stages of 16 rows and the
  // tokens; sums of two tiles.
  constexpr int ring_bytes(int weight_bytes) const {
    return 8 * depth * (16 * (64 * weight_bytes + 16) + tokens * 256);
  }
  constexpr int bytes(int weight_bytes) const { return ring_bytes(weight_bytes) + 2 * 8 * tokens * 16 * 4; }
};

struct FloatProduct {
  LinearMatrix w;
  int64_t cols = 0;
  bool is_fast = false;     // is_multiplied_fast()
  bool packs_rows = false;  // a product of the plan packs rows of activations for tiles: there is memory for them
  int64_t n_row_tiles = 1;  // of kFloatTileRows, of all exact products of its group

  // Of a weight as exact products read it: what is no float is decoded.
  int weight_bytes() const noexcept;
};

enum class FloatKernel { tiles, skinny, any, fast_tiles, fast_skinny_of_blocks, fast_skinny };
constexpr bool is_fast(FloatKernel kernel) noexcept { return kernel >= FloatKernel::fast_tiles; }

struct FloatRow {
  std::string_view name;  // unique in the table
  FloatKernel kernel;
  int64_t tokens_min;
  bool (*takes)(const FloatProduct& product, const Card& card, const FloatForm& form) noexcept;
  FloatForm form = {};                                                                      // of tiles and skinny
  int64_t (*tokens_max)(const FloatProduct& product, const Card& card) noexcept = nullptr;  // null: any number
};

std::span<const FloatRow> float_table() noexcept;  // those of higher rank first
const FloatRow* find_float_row(std::string_view name) noexcept;
// Whether it takes the product, whatever number of tokens it is for.
bool takes(const FloatRow& row, const FloatProduct& product, const Card& card) noexcept;

using FloatRange = lower::RowRange<FloatRow>;

class FloatChoice : public lower::RowRanges<FloatRow> {
 public:
  FloatChoice(const FloatProduct& product, const Card& card);
};

}  // namespace assay::backend::cuda
