// What the AVX2 matrix-matrix kernels share. 8 rows are the 8 lanes of a register; a strip is two such groups, and the
// loops multiply a strip with a tile of few tokens so that every sum stays in a register. Included by kernel files
// only; everything here is local to the file that includes it.
//   What differs comes in as a class Kernel:
//   kBlock                   elements of a block: 32 or 256
//   kTokens                  tokens of its tile
//   kStripBytes, kTileBytes  of one block of a strip in the panel, and of a tile's activations
//   kBlocksNear              blocks of a strip that the first-level cache holds beside the activations
//   build(task, p, out)      unpacks the block of 8 rows at p; registers of the other group lie between its own, 64 bytes apart
//   lay(task, rows, b, out)  block b of the activations of kTokens rows
//   run(w, x, n, c)          adds the terms of n blocks to the chains c[token][group]
#pragma once

#include <immintrin.h>

#include "backend/cpu/gemm/gemm_panels.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kRows = 8;
constexpr int kGroups = 2;
constexpr int64_t kStripRows = kRows * kGroups;
constexpr int kTokensNear = 12;  // tokens that run against a strip's blocks while these are in the first-level cache
constexpr int64_t kLaidBytes =
    1024 * 1024;  // what the laid activations may take; the tokens beyond unpack the weights once more

inline __m256i load_256(const void* p, int64_t at) noexcept {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(static_cast<const std::byte*>(p) + at));
}

inline void store_256(__m256i v, std::byte* p) noexcept { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }

inline __m256i widen(const int8_t* p) noexcept {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline const float* floats(const std::byte* p) noexcept { return reinterpret_cast<const float*>(p); }
inline const int32_t* dwords(const std::byte* p) noexcept { return reinterpret_cast<const int32_t*>(p); }

// 4 registers in each of their halves: out[i] has dword i of r[0], r[1], r[2] and r[3].
inline void transpose_parts(const __m256i* r, __m256i* out) noexcept {
  const __m256i ab_low = _mm256_unpacklo_epi32(r[0], r[1]), ab_high = _mm256_unpackhi_epi32(r[0], r[1]);
  const __m256i cd_low = _mm256_unpacklo_epi32(r[2], r[3]), cd_high = _mm256_unpackhi_epi32(r[2], r[3]);
  out[0] = _mm256_unpacklo_epi64(ab_low, cd_low);
  out[1] = _mm256_unpackhi_epi64(ab_low, cd_low);
  out[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
  out[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}

// Bytes at..at + 15 of 8 rows to 4 registers of a dword of every row. Halves are put together as they are loaded: a
// permutation across registers has one port, which transposing whole registers would wait for.
inline void transpose_16_bytes(const std::byte* const* p, int64_t at, __m256i* columns) noexcept {
  const auto part = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p[i] + at)); };
  __m256i r[4];
  for (int i = 0; i < 4; ++i) r[i] = _mm256_set_m128i(part(i + 4), part(i));
  transpose_parts(r, columns);
}

// The bytes at even and at odd places of a register as words: 2 of 4 elements that follow one another, and the other 2.
struct WordPairs {
  __m256i even, odd;
};
inline WordPairs signed_words(__m256i bytes) noexcept {
  return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
}
// Of both planes: 128 q + l.
inline WordPairs joined_words(__m256i q, __m256i l) noexcept {
  const __m256i join = _mm256_set1_epi16(0x0180);  // 128 q + 1 l
  const __m256i odd_bytes = _mm256_set1_epi16(static_cast<int16_t>(0xFF00)), even_bytes = _mm256_set1_epi16(0xFF);
  const __m256i even = _mm256_or_si256(_mm256_and_si256(q, even_bytes), _mm256_slli_epi16(l, 8));
  const __m256i odd = _mm256_or_si256(_mm256_srli_epi16(q, 8), _mm256_and_si256(l, odd_bytes));
  return {_mm256_maddubs_epi16(join, even), _mm256_maddubs_epi16(join, odd)};
}

// 8 registers of 8 dwords, rows to columns.
inline void transpose_8(const __m256i* rows, __m256i* out) noexcept {
  __m256i parts[2][4];
  for (int h = 0; h < 2; ++h) transpose_parts(rows + 4 * h, parts[h]);
  for (int j = 0; j < 4; ++j) {
    out[j] = _mm256_permute2x128_si256(parts[0][j], parts[1][j], 0x20);
    out[j + 4] = _mm256_permute2x128_si256(parts[0][j], parts[1][j], 0x31);
  }
}

// 8 dwords of each of 8 rows to the panel: register d holds dword d of every row.
inline void store_columns(const __m256i* rows, std::byte* out) noexcept {
  __m256i columns[8];
  transpose_8(rows, columns);
  for (int d = 0; d < 8; ++d) store_256(columns[d], out + 64 * d);
}

// The loops below are in assembly because the sums of a tile leave four registers over, which the compiler's own order
// of instructions exceeds. x is one dword of activations: 4 bytes, of which each pair gives a word, or 2 words, which
// give a dword.

// sum = a * x, b * x
inline void begin_bytes(__m256i a, __m256i b, const int32_t* x, __m256i* sum) noexcept {
  asm("vpbroadcastd %[x], %[sum1]\n\t"
      "vpmaddubsw %[sum1], %[a], %[sum0]\n\t"
      "vpmaddubsw %[sum1], %[b], %[sum1]"
      : [sum0] "=&x"(sum[0]), [sum1] "=&x"(sum[1])
      : [a] "x"(a), [b] "x"(b), [x] "m"(*x));
}

// sum = start + a * x, start + b * x
inline void begin_bytes_at(__m256i a, __m256i b, const int32_t* x, const int32_t* start, __m256i* sum) noexcept {
  __m256i v, product;
  asm("vpbroadcastd %[x], %[v]\n\t"
      "vpbroadcastd %[start], %[sum0]\n\t"
      "vpmaddubsw %[v], %[a], %[product]\n\t"
      "vpmaddubsw %[v], %[b], %[v]\n\t"
      "vpaddw %[v], %[sum0], %[sum1]\n\t"
      "vpaddw %[product], %[sum0], %[sum0]"
      : [sum0] "=&x"(sum[0]), [sum1] "=&x"(sum[1]), [v] "=&x"(v), [product] "=&x"(product)
      : [a] "x"(a), [b] "x"(b), [x] "m"(*x), [start] "m"(*start));
}

// sum += a * x, b * x
inline void add_bytes(__m256i a, __m256i b, const int32_t* x, __m256i* sum) noexcept {
  __m256i v, product;
  asm("vpbroadcastd %[x], %[v]\n\t"
      "vpmaddubsw %[v], %[a], %[product]\n\t"
      "vpmaddubsw %[v], %[b], %[v]\n\t"
      "vpaddw %[product], %[sum0], %[sum0]\n\t"
      "vpaddw %[v], %[sum1], %[sum1]"
      : [sum0] "+x"(sum[0]), [sum1] "+x"(sum[1]), [v] "=&x"(v), [product] "=&x"(product)
      : [a] "x"(a), [b] "x"(b), [x] "m"(*x));
}

// total += the pairs of words times the pairs of scale. The words are used up.
inline void add_scaled(__m256i& words, const std::byte* scale, __m256i& total) noexcept {
  asm("vpmaddwd %[scale], %[words], %[words]\n\t"
      "vpaddd %[words], %[total], %[total]"
      : [words] "+x"(words), [total] "+x"(total)
      : [scale] "m"(*reinterpret_cast<const __m256i*>(scale)));
}

inline void add_words(__m256i a, __m256i b, const int32_t* x, __m256i* sum) noexcept {
  __m256i v, product;
  asm("vpbroadcastd %[x], %[v]\n\t"
      "vpmaddwd %[v], %[a], %[product]\n\t"
      "vpmaddwd %[v], %[b], %[v]\n\t"
      "vpaddd %[product], %[sum0], %[sum0]\n\t"
      "vpaddd %[v], %[sum1], %[sum1]"
      : [sum0] "+x"(sum[0]), [sum1] "+x"(sum[1]), [v] "=&x"(v), [product] "=&x"(product)
      : [a] "x"(a), [b] "x"(b), [x] "m"(*x));
}

// Sums of 8 kUnits pairs of words. w: [pair][group]; x: [unit of 8 pairs][token][pair].
// Inlined always: else the sums are in memory.
template <int kUnits, int kTokens>
[[gnu::always_inline]] inline void sums_of_words(const std::byte* w, const std::byte* x,
                                                 __m256i (&sum)[kTokens][kGroups]) noexcept {
  for (int unit = 0; unit < kUnits; ++unit, w += 8 * 64, x += kTokens * 32) {
#pragma GCC unroll 8
    for (int p = 0; p < 8; ++p) {
      const __m256i a = load_256(w, 64 * p), b = load_256(w, 64 * p + 32);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) add_words(a, b, dwords(x + 32 * t) + p, sum[t]);
    }
  }
}

// The terms of a block of 32 from its sums, to the chains. scales: d of both groups, then m where the format has a
// minimum; g and d of each token.
template <bool kHasMin, int kTokens>
inline void add_terms(const __m256i (&sum)[kTokens][kGroups], const std::byte* scales, const float* g_of_token,
                      const float* d_of_token, __m256 (&c)[kTokens][kGroups]) noexcept {
  for (int t = 0; t < kTokens; ++t) {
    for (int g = 0; g < kGroups; ++g) {
      const __m256 f = _mm256_cvtepi32_ps(sum[t][g]), d = _mm256_load_ps(floats(scales + 32 * g));
      __m256 term;
      if constexpr (kHasMin) {
        const __m256 m = _mm256_mul_ps(_mm256_load_ps(floats(scales + 64 + 32 * g)), _mm256_set1_ps(g_of_token[t]));
        term = _mm256_fmadd_ps(d, f, m);
      } else {
        term = _mm256_mul_ps(d, f);
      }
      c[t][g] = _mm256_fmadd_ps(_mm256_set1_ps(d_of_token[t]), term, c[t][g]);
    }
  }
}

// The tree of the contract over the 8 chunks, then the bias.
template <int kTokens>
inline void store_tile(const LinearTask& task, const __m256 (*chunks)[kTokens][kGroups], int64_t token, int64_t row,
                       int64_t row_end) noexcept {
  for (int t = 0; t < kTokens && token + t < task.n_tokens; ++t) {
    for (int g = 0; g < kGroups; ++g) {
      const auto pair = [&](int i) { return _mm256_add_ps(chunks[i][t][g], chunks[i + 1][t][g]); };
      const __m256 sum = _mm256_add_ps(_mm256_add_ps(pair(0), pair(2)), _mm256_add_ps(pair(4), pair(6)));
      const int64_t first = row + g * kRows, n = smaller(kRows, row_end - first);
      float* y = task.y.data + (token + t) * task.y.stride + first;
      if (n == kRows) {
        _mm256_storeu_ps(y, task.bias == nullptr ? sum : _mm256_add_ps(sum, _mm256_loadu_ps(task.bias + first)));
        continue;
      }
      alignas(32) float values[kRows];
      _mm256_store_ps(values, sum);
      for (int64_t i = 0; i < n; ++i) y[i] = task.bias == nullptr ? values[i] : values[i] + task.bias[first + i];
    }
  }
}

// A strip against n_tiles tiles, one behind the other from `token` on.
template <class Kernel>
void run_strip(const LinearTask& task, const std::byte* strip, const std::byte* x, int64_t n_tiles, int64_t token,
               int64_t row, int64_t row_end) noexcept {
  constexpr int kTiles = kTokensNear / Kernel::kTokens;
  const int64_t n_blocks = task.k / Kernel::kBlock;
  __m256 chunks[kTiles][8][Kernel::kTokens][kGroups];
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t tile = 0; tile < n_tiles; ++tile) {
      for (int t = 0; t < Kernel::kTokens; ++t) chunks[tile][i][t][0] = chunks[tile][i][t][1] = _mm256_setzero_ps();
    }
    const int64_t end = (i + 1) * n_blocks / 8;
    for (int64_t b = i * n_blocks / 8; b < end; b += Kernel::kBlocksNear) {
      const int64_t n = smaller(Kernel::kBlocksNear, end - b);
      for (int64_t tile = 0; tile < n_tiles; ++tile) {
        Kernel::run(strip + b * Kernel::kStripBytes, x + (tile * n_blocks + b) * Kernel::kTileBytes, n,
                    chunks[tile][i]);
      }
    }
  }
  for (int64_t tile = 0; tile < n_tiles; ++tile) {
    store_tile<Kernel::kTokens>(task, chunks[tile], token + tile * Kernel::kTokens, row, row_end);
  }
}

template <class Kernel>
void lay_tokens(const LinearTask& task, int64_t token, int64_t n, std::byte* x) noexcept {
  for (int64_t first = token; first < token + n; first += Kernel::kTokens) {
    int64_t rows[Kernel::kTokens];
    for (int t = 0; t < Kernel::kTokens; ++t) rows[t] = smaller(first + t, task.n_tokens - 1);
    for (int64_t b = 0; b < task.k / Kernel::kBlock; ++b, x += Kernel::kTileBytes) Kernel::lay(task, rows, b, x);
  }
}

// Tokens whose activations are laid together: a multiple of kTokensNear.
template <class Kernel>
int64_t tokens_laid(const LinearTask& task) noexcept {
  const int64_t bytes_near = kTokensNear / Kernel::kTokens * (task.k / Kernel::kBlock) * Kernel::kTileBytes;
  const int64_t fit = kLaidBytes / bytes_near, needed = (task.n_tokens + kTokensNear - 1) / kTokensNear;
  return smaller(fit < 1 ? 1 : fit, needed) * kTokensNear;
}

template <class Kernel>
int64_t panel_rows_of(const LinearTask& task) noexcept {
  return panel_rows<kStripRows>(task.k / Kernel::kBlock * Kernel::kStripBytes);
}

template <class Kernel>
void gemm(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  const int64_t n_blocks = task.k / Kernel::kBlock, strip_bytes = n_blocks * Kernel::kStripBytes;
  const int64_t rows = panel_rows_of<Kernel>(task), laid = tokens_laid<Kernel>(task);
  std::byte* x = scratch + rows / kStripRows * strip_bytes;
  for (int64_t token = 0; token < task.n_tokens; token += laid) {
    const int64_t n = smaller(laid, task.n_tokens - token);
    lay_tokens<Kernel>(task, token, n, x);
    const auto build = [&](int64_t row, int64_t end, int64_t group) {
      const std::byte* p[kRows];
      rows_of_group<kRows>(task, row, end, p);
      std::byte* out = scratch + group / kGroups * strip_bytes + 32 * (group % kGroups);
      for (int64_t b = 0; b < n_blocks; ++b, out += Kernel::kStripBytes) Kernel::build(task, p, out);
    };
    const auto run = [&](int64_t begin, int64_t end) {
      for (int64_t near = 0; near < n; near += kTokensNear) {
        const int64_t n_tiles = (smaller(kTokensNear, n - near) + Kernel::kTokens - 1) / Kernel::kTokens;
        const std::byte* tiles = x + near / Kernel::kTokens * n_blocks * Kernel::kTileBytes;
        for (int64_t row = begin; row < end; row += kStripRows) {
          const std::byte* strip = scratch + (row - begin) / kStripRows * strip_bytes;
          run_strip<Kernel>(task, strip, tiles, n_tiles, token + near, row, end);
        }
      }
    };
    walk_panels<kRows>(row_begin, row_end, rows, build, run);
  }
}

template <class Kernel>
size_t gemm_scratch_bytes(const LinearTask& task) noexcept {
  const int64_t n_blocks = task.k / Kernel::kBlock;
  return static_cast<size_t>(n_blocks * (panel_rows_of<Kernel>(task) / kStripRows * Kernel::kStripBytes +
                                         tokens_laid<Kernel>(task) / Kernel::kTokens * Kernel::kTileBytes));
}

}  // namespace
}  // namespace assay::backend::cpu
