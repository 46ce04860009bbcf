// Half-precision numbers of 8 blocks to floats, for the matrix-vector kernels of AVX2 and above. Included by kernel
// files only; everything here is local to the file that includes it.
#pragma once

#include <immintrin.h>

namespace assay::backend::cpu {
namespace {

// The first 4 bytes of 8 blocks.
struct Heads {
  __m128i lanes0, lanes4;
};

// d in the first two bytes.
inline __m256 half_scales(const Heads& h) noexcept {
  const __m128i mask = _mm_set1_epi32(0xFFFF);
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm_and_si128(h.lanes0, mask), _mm_and_si128(h.lanes4, mask)));
}

// A second half-precision number behind it.
inline __m256 half_minima(const Heads& h) noexcept {
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm_srli_epi32(h.lanes0, 16), _mm_srli_epi32(h.lanes4, 16)));
}

// Both of 8 dwords.
struct HalfPairs {
  __m256 first, second;
};
inline HalfPairs half_pairs(__m256i dwords) noexcept {
  const Heads heads = {_mm256_castsi256_si128(dwords), _mm256_extracti128_si256(dwords, 1)};
  return {half_scales(heads), half_minima(heads)};
}

}  // namespace
}  // namespace assay::backend::cpu
