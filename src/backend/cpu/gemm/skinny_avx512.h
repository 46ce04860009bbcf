// What the AVX-512 kernels for few tokens share: a strip is two groups of 16 rows, the 16 lanes of a register each.
// Included by kernel files only; everything here is local to the file that includes it.
#pragma once

#include <immintrin.h>

#include "backend/cpu/gemm/skinny_loops.h"
#include "backend/cpu/gemm/transpose_avx512.h"

namespace assay::backend::cpu {
namespace {

constexpr int kGroupRows = 16, kGroups = 2;
constexpr int kColumns = 6;  // of a tile; a column is a plane of a token

// 16 bytes of each of 16 rows that lie row_bytes apart, transposed: out[i] has dword i of every row.
inline void load_columns(const std::byte* p, int64_t row_bytes, Ahead& ahead, __m512i* out) noexcept {
  ahead.fetch_line();
  const auto part = [&](const std::byte* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
  const std::byte *p4 = p + 4 * row_bytes, *p8 = p + 8 * row_bytes, *p12 = p8 + 4 * row_bytes;
  __m512i rows[4];  // rows i, i + 4, i + 8, i + 12
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm512_inserti32x4(_mm512_castsi128_si512(part(p + i * row_bytes)), part(p4 + i * row_bytes), 1);
    rows[i] = _mm512_inserti32x4(rows[i], part(p8 + i * row_bytes), 2);
    rows[i] = _mm512_inserti32x4(rows[i], part(p12 + i * row_bytes), 3);
  }
  transpose_parts(rows, out);
}

// The dword at p of each of 16 rows.
inline __m512i load_column(const std::byte* p, int64_t row_bytes) noexcept {
  const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_i32gather_epi32(_mm512_mullo_epi32(row, _mm512_set1_epi32(static_cast<int32_t>(row_bytes))), p, 1);
}

inline __m512 low_halves(__m512i dwords) noexcept { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords)); }
inline __m512 high_halves(__m512i dwords) noexcept { return low_halves(_mm512_srli_epi32(dwords, 16)); }

// Bits of a where mask has them, else of b.
inline __m512i choose_bits(__m512i mask, __m512i a, __m512i b) noexcept {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
}

inline __m512i broadcast_4(const int8_t* p) noexcept {
  int32_t bytes;
  __builtin_memcpy(&bytes, p, 4);
  return _mm512_set1_epi32(bytes);
}

// sum[column][group] += n dwords of weights times activations. w: of both groups; x: of the columns, x_step apart.
template <int kDwords, int kUsed>
inline void add_dots(const uint8_t (*const* w)[64], const int8_t* x, int64_t x_step,
                     __m512i (&sum)[kUsed][kGroups]) noexcept {
#pragma GCC unroll 8
  for (int j = 0; j < kDwords; ++j) {
    const __m512i a = _mm512_load_si512(w[0][j]), b = _mm512_load_si512(w[1][j]);
#pragma GCC unroll 8
    for (int column = 0; column < kUsed; ++column) {
      const __m512i v = broadcast_4(x + column * x_step + 4 * j);
      sum[column][0] = _mm512_dpbusd_epi32(sum[column][0], a, v);
      sum[column][1] = _mm512_dpbusd_epi32(sum[column][1], b, v);
    }
  }
}

// F of section 2.2 from the sums of a token's planes.
template <int kPlanes, int kUsed>
inline __m512 join_columns(const __m512i (&sum)[kUsed][kGroups], int token, int g) noexcept {
  const __m512 first = _mm512_cvtepi32_ps(sum[token * kPlanes][g]);
  if constexpr (kPlanes == 1) return first;
  return _mm512_fmadd_ps(_mm512_set1_ps(0x1p-7f), _mm512_cvtepi32_ps(sum[token * kPlanes + kPlanes - 1][g]), first);
}

}  // namespace
}  // namespace assay::backend::cpu
