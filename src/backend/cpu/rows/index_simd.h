// Scores of index keys, 16 positions in a register. Contract: ops/attention/choose_keys.h.
#pragma once

#include "backend/cpu/rows/attention_simd.h"

namespace assay::backend::cpu {
namespace {

// Adds n heads, kRows of them in the tile, to the scores of the halves [half, end) of key tiles. q: packed as those of
// attention.
template <template <int> class Keys, int kRows, int kCols>
static inline void index_columns(const IndexBlock& block, const float* q, const float* weights, int64_t n, int64_t half,
                                 int64_t end) noexcept {
  for (; half + kCols <= end; half += kCols) {
    Vec acc[kRows][kCols];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCols; ++c) acc[r][c] = splat(0.0f);
    }
    product<kRows, kCols, kQueryStride, 1>(q, Keys<kCols>(block.keys, half), block.keys.head_dim, acc);
#pragma GCC unroll 8
    for (int c = 0; c < kCols; ++c) {
      float* scores = block.scores + (half + c) * 16;
      Vec sum = load(scores);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        if (r < n) sum = fma(splat(weights[r]), greater(splat(0.0f), acc[r][c]), sum);  // a NaN stays
      }
      store(scores, sum);
    }
  }
  if constexpr (kCols > 1) index_columns<Keys, kRows, kCols / 2>(block, q, weights, n, half, end);
}

template <template <int> class Keys>
struct IndexWork {
  const IndexBlock& block;
  const float* q;
  const float* weights;
  int64_t n_heads, half, end;
  template <int kRows>
  void rows(int64_t row) const noexcept {
    index_columns<Keys, kRows, widest_tile(kRows)>(block, q + row, weights + row, n_heads - row, half, end);
  }
};

static void index_scores(const IndexBlock& block, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  auto* q = reinterpret_cast<float*>(scratch);
  const int64_t head_dim = block.keys.head_dim, half = begin / 16, half_end = (end + kKeyTile - 1) / kKeyTile * 2;
  for (int64_t i = half; i < half_end; ++i) store(block.scores + i * 16, splat(0.0f));
  for (int64_t first = 0; first < block.n_heads; first += kAttentionRows) {
    const int64_t n = block.n_heads - first < kAttentionRows ? block.n_heads - first : kAttentionRows;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t j = 0; j < head_dim; ++j) q[j * kQueryStride + r] = block.q[(first + r) * head_dim + j];
    }
    const float* weights = block.weights + first;
    if (block.keys.type_k == ops::CacheType::f16) {
      for_row_tiles(n, IndexWork<KeysF16>{block, q, weights, n, half, half_end});
    } else if (block.keys.type_k == ops::CacheType::f32) {
      for_row_tiles(n, IndexWork<KeysF32>{block, q, weights, n, half, half_end});
    } else {
      for_row_tiles(n, IndexWork<KeysQ8>{block, q, weights, n, half, half_end});
    }
  }
}

}  // namespace
}  // namespace assay::backend::cpu
