// The transposition that the AVX-512 kernels with rows in lanes are made of. Included by kernel files only; everything
// here is local to the file that includes it.
#pragma once

#include <immintrin.h>

namespace assay::backend::cpu {
namespace {

// 4 registers in each of their 128-bit parts: out[i] has dword i of r[0], r[1], r[2] and r[3].
inline void transpose_parts(const __m512i* r, __m512i* out) noexcept {
  const __m512i ab_low = _mm512_unpacklo_epi32(r[0], r[1]), ab_high = _mm512_unpackhi_epi32(r[0], r[1]);
  const __m512i cd_low = _mm512_unpacklo_epi32(r[2], r[3]), cd_high = _mm512_unpackhi_epi32(r[2], r[3]);
  out[0] = _mm512_unpacklo_epi64(ab_low, cd_low);
  out[1] = _mm512_unpackhi_epi64(ab_low, cd_low);
  out[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
  out[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}

}  // namespace
}  // namespace assay::backend::cpu
