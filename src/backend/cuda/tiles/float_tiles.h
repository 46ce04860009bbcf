// Products of float weights for many tokens (contract: ops/linear/linear.h, Lanes32 in 8 chunks). Weights and rows are
// first packed as float32 in the order in which the contract's chains want them, so that one kernel serves every type
// of weight, decoded ones too.
//
//   packed K           chunk 0: lane 0, 16, 8, 24, ..; chunk 1: ..; of a lane its elements block after block: a chain lies in one piece
//   block of threads   128 rows x 64 tokens, or 16 by the row of the table; stages of packed weights and rows in shared memory, two by turns
//   a thread           8 rows x 8 tokens, or 2: chain after chain in registers; sums of 4 and 8 lanes wait in shared memory, of 16 lanes and of chunks
//                      in FloatScratch::sums  ------>  y
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/linear/float_rows.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

// Memory for the packed floats and for sums that wait for their neighbours.
struct FloatScratch {
  float* w = nullptr;
  int64_t n_w = 0;  // floats there
  float* x = nullptr;
  float* sums = nullptr;
};
// Floats of FloatScratch::x and, for each multiprocessor, of FloatScratch::sums.
constexpr int64_t float_rows_packed(int64_t n_tokens, int64_t cols) noexcept {
  return (n_tokens + kFloatTileTokens - 1) / kFloatTileTokens * kFloatTileTokens * cols;
}
inline constexpr int64_t kFloatSums = 2 * 4 * kFloatTileRows * kFloatTileTokens;

// Products of the same activations, as many rows at a time as there is memory for.
class FloatTiles {
 public:
  // x: [n_tokens, cols]. tile_tokens: kFloatTileTokens or kFloatTileTokensFew, of a row `float tiles` of the table.
  FloatTiles(const FloatScratch& scratch, int tile_tokens, int64_t cols, const float* x, int64_t n_tokens,
             const Queue& queue);
  void add(FloatRows rows);
  void finish();  // the products of what has been added

 private:
  int64_t n_tiles_max() const noexcept { return scratch_.n_w / (kFloatTileRows * cols_); }

  static constexpr int kRunsMax = 8;
  const FloatScratch scratch_;
  const int64_t cols_, n_tokens_;
  const float* const x_;
  const int tile_tokens_;
  bool x_is_packed_ = false;
  const Queue queue_;
  FloatRows runs_[kRunsMax];
  int64_t first_tile_[kRunsMax] = {};
  int n_runs_ = 0;
  int64_t n_tiles_ = 0;
};

}  // namespace assay::backend::cuda
