// floats8.h by AVX2: one register each. Included by kernel files only; everything here is local to the file that
// includes it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace assay::backend::cpu {
namespace {

using Floats8 = __m256;
using Ints8 = __m256i;

inline Floats8 zero_8() noexcept { return _mm256_setzero_ps(); }
inline Floats8 load_8(const float* p) noexcept { return _mm256_load_ps(p); }  // aligned
inline void store_8(float* p, Floats8 x) noexcept { _mm256_store_ps(p, x); }
inline Floats8 add_8(Floats8 a, Floats8 b) noexcept { return _mm256_add_ps(a, b); }
inline Floats8 mul_8(Floats8 a, Floats8 b) noexcept { return _mm256_mul_ps(a, b); }
inline Floats8 fma_8(Floats8 a, Floats8 b, Floats8 c) noexcept { return _mm256_fmadd_ps(a, b, c); }
inline Floats8 splat_8(float x) noexcept { return _mm256_set1_ps(x); }
inline Floats8 to_floats(Ints8 x) noexcept { return _mm256_cvtepi32_ps(x); }
// Lanes of a where mask is -1, of b where it is 0.
inline Floats8 choose_8(const int32_t* mask, Floats8 a, Floats8 b) noexcept {
  return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(mask))));
}

// Lane i is lane places[i] of x.
inline Floats8 permute_8(Floats8 x, const int32_t* places) noexcept {
  return _mm256_permutevar8x32_ps(x, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(places)));
}

// x -= factor * y, y aligned.
template <int kFactor>
inline void subtract_products(Ints8& x, const int32_t* y) noexcept {
  const __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(y));
  x = _mm256_sub_epi32(x, _mm256_mullo_epi32(v, _mm256_set1_epi32(kFactor)));
}

// Sums over the 8 dwords of 8 registers, in order.
inline __m256i add_across(const __m256i* v) noexcept {
  const __m256i lanes0 = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i lanes4 = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(lanes0, lanes4, 0x20),
                          _mm256_permute2x128_si256(lanes0, lanes4, 0x31));
}

// Section 2.4 of the contract over the chunks c0..c7.
inline float tree(Floats8 c) noexcept {
  const __m256 pairs = _mm256_hadd_ps(c, c);
  const __m256 fours = _mm256_hadd_ps(pairs, pairs);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

}  // namespace
}  // namespace assay::backend::cpu
