// What the AVX-512 matrix-matrix kernels share: 16 rows are the 16 lanes of a register. Included by kernel files only;
// everything here is local to the file that includes it.
#pragma once

#include <immintrin.h>

#include "backend/cpu/gemm/gemm_panels.h"
#include "backend/cpu/gemm/transpose_avx512.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kRows = 16;

inline __mmask16 first_lanes(int64_t n) noexcept {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFF : n > 0 ? (1 << n) - 1 : 0);
}

// 16 rows of 8 dwords to 8 registers of 16 rows. row(i) gives 32 bytes.
template <class Row>
inline void transpose_16(const Row& row, __m512i* out) noexcept {
  const auto pair = [&](int i) { return _mm512_inserti64x4(_mm512_castsi256_si512(row(i)), row(i + 4), 1); };
  __m512i parts[2][4];
  for (int h = 0; h < 2; ++h) {
    const __m512i pairs[4] = {pair(8 * h), pair(8 * h + 1), pair(8 * h + 2), pair(8 * h + 3)};
    transpose_parts(pairs, parts[h]);
  }
  for (int j = 0; j < 4; ++j) {
    out[j] = _mm512_shuffle_i32x4(parts[0][j], parts[1][j], 0x88);
    out[j + 4] = _mm512_shuffle_i32x4(parts[0][j], parts[1][j], 0xDD);
  }
}

// Bytes at..at + 15 of 16 rows to 4 registers of a dword of every row.
inline void transpose_dwords(const std::byte* const* rows, int64_t at, __m512i* out) noexcept {
  const auto part = [&](int i) {
    const std::byte* row = rows[i];
    asm("" : "+r"(row));  // else g++ adds `at` to all pointers in vector registers and takes them apart again
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + at));
  };
  __m512i r[4];
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_inserti32x4(_mm512_castsi128_si512(part(i)), part(i + 4), 1);
    r[i] = _mm512_inserti32x4(_mm512_inserti32x4(r[i], part(i + 8), 2), part(i + 12), 3);
  }
  transpose_parts(r, out);
}

inline __m512i broadcast_4(const int8_t* p) noexcept {
  int32_t bytes;
  __builtin_memcpy(&bytes, p, 4);
  return _mm512_set1_epi32(bytes);
}

// Adds the bias; rows from row_end on are not stored.
inline void store_rows(const LinearTask& task, int64_t token, int64_t row, int64_t row_end, __m512 sum) noexcept {
  const __mmask16 mask = first_lanes(row_end - row);
  if (task.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, task.bias + row));
  _mm512_mask_storeu_ps(task.y.data + token * task.y.stride + row, mask, sum);
}

// The tree of the contract over the 8 chunks, then the bias.
template <int kTokens, int kGroups>
inline void store_tile(const LinearTask& task, const __m512 (&chunks)[8][kTokens][kGroups], int64_t token, int64_t row,
                       int64_t row_end) noexcept {
  for (int t = 0; t < kTokens && token + t < task.n_tokens; ++t) {
    for (int g = 0; g < kGroups; ++g) {
      const auto pair = [&](int i) { return _mm512_add_ps(chunks[i][t][g], chunks[i + 1][t][g]); };
      const __m512 sum = _mm512_add_ps(_mm512_add_ps(pair(0), pair(2)), _mm512_add_ps(pair(4), pair(6)));
      store_rows(task, token + t, row + g * kRows, row_end, sum);
    }
  }
}

}  // namespace
}  // namespace assay::backend::cpu
