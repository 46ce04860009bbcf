// What the AVX2 matrix-matrix kernels share: 8 rows are the 8 lanes of a register, weights and activations are words, and vpmaddwd multiplies 2
// elements of 8 rows with 2 of one activation column. Included by kernel files only; everything here is local to the file that includes it.
#pragma once

#include <immintrin.h>

#include "backend/cpu/gemm.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kRows = 8;
constexpr int kColumns = 4;  // of a tile
constexpr int kGroups = 2;   // groups of 8 rows of a tile

inline int64_t smaller(int64_t a, int64_t b) noexcept { return a < b ? a : b; }

inline __m256i load_256(const void* p, int64_t at) noexcept {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(static_cast<const std::byte*>(p) + at));
}

// 8 registers of 8 dwords, rows to columns.
inline void transpose_8(const __m256i* rows, __m256i* out) noexcept {
  __m256i parts[2][4];
  for (int h = 0; h < 2; ++h) {
    const __m256i *r = rows + 4 * h;
    const __m256i ab_low = _mm256_unpacklo_epi32(r[0], r[1]), ab_high = _mm256_unpackhi_epi32(r[0], r[1]);
    const __m256i cd_low = _mm256_unpacklo_epi32(r[2], r[3]), cd_high = _mm256_unpackhi_epi32(r[2], r[3]);
    parts[h][0] = _mm256_unpacklo_epi64(ab_low, cd_low);
    parts[h][1] = _mm256_unpackhi_epi64(ab_low, cd_low);
    parts[h][2] = _mm256_unpacklo_epi64(ab_high, cd_high);
    parts[h][3] = _mm256_unpackhi_epi64(ab_high, cd_high);
  }
  for (int j = 0; j < 4; ++j) {
    out[j] = _mm256_permute2x128_si256(parts[0][j], parts[1][j], 0x20);
    out[j + 4] = _mm256_permute2x128_si256(parts[0][j], parts[1][j], 0x31);
  }
}

// 16 words of each of 8 rows to 8 registers of pairs: register p holds words 2p and 2p + 1 of every row.
inline void store_pairs(const __m256i* rows, std::byte* out) noexcept {
  __m256i pairs[8];
  transpose_8(rows, pairs);
  for (int p = 0; p < 8; ++p) _mm256_store_si256(reinterpret_cast<__m256i*>(out + 32 * p), pairs[p]);
}

// 16 activations of 4 columns as words, interleaved: [pair][column].
inline void interleave_16(const __m256i* columns, int32_t* out) noexcept {
  const __m256i ab_low = _mm256_unpacklo_epi32(columns[0], columns[1]), ab_high = _mm256_unpackhi_epi32(columns[0], columns[1]);
  const __m256i cd_low = _mm256_unpacklo_epi32(columns[2], columns[3]), cd_high = _mm256_unpackhi_epi32(columns[2], columns[3]);
  const __m256i pairs[4] = {_mm256_unpacklo_epi64(ab_low, cd_low), _mm256_unpackhi_epi64(ab_low, cd_low),
                            _mm256_unpacklo_epi64(ab_high, cd_high), _mm256_unpackhi_epi64(ab_high, cd_high)};
  for (int p = 0; p < 4; ++p) {  // pair p in the lower half, p + 4 in the upper
    _mm_store_si128(reinterpret_cast<__m128i*>(out + kColumns * p), _mm256_castsi256_si128(pairs[p]));
    _mm_store_si128(reinterpret_cast<__m128i*>(out + kColumns * (p + 4)), _mm256_extracti128_si256(pairs[p], 1));
  }
}

// Adds n pairs of elements to the sums. x: [pair][column].
inline void add_pairs(const std::byte* w0, const std::byte* w1, const int32_t* x, int64_t n, __m256i (&sum)[kColumns][kGroups]) noexcept {
  for (int64_t p = 0; p < n; ++p) {
    const __m256i a = load_256(w0, 32 * p), b = load_256(w1, 32 * p);
    for (int column = 0; column < kColumns; ++column) {
      const __m256i v = _mm256_set1_epi32(x[kColumns * p + column]);
      sum[column][0] = _mm256_add_epi32(sum[column][0], _mm256_madd_epi16(a, v));
      sum[column][1] = _mm256_add_epi32(sum[column][1], _mm256_madd_epi16(b, v));
    }
  }
}

// The tree of the contract over the 8 chunks, then the bias.
template <int kTokens>
inline void store_tile(const LinearTask& task, const __m256 (&chunks)[8][kTokens][kGroups], int64_t token, int64_t row,
                       int64_t row_end) noexcept {
  for (int t = 0; t < kTokens && token + t < task.n_tokens; ++t) {
    for (int g = 0; g < kGroups; ++g) {
      const auto pair = [&](int i) { return _mm256_add_ps(chunks[i][t][g], chunks[i + 1][t][g]); };
      alignas(32) float sum[kRows];
      _mm256_store_ps(sum, _mm256_add_ps(_mm256_add_ps(pair(0), pair(2)), _mm256_add_ps(pair(4), pair(6))));
      const int64_t first = row + g * kRows, n = smaller(kRows, row_end - first);
      float* y = task.y.data + (token + t) * task.y.stride + first;
      for (int64_t i = 0; i < n; ++i) y[i] = task.bias == nullptr ? sum[i] : sum[i] + task.bias[first + i];
    }
  }
}

}  // namespace
}  // namespace assay::backend::cpu
