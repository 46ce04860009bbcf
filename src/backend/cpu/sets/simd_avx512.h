// Sixteen floats at a time with AVX-512. simd_avx2.h offers the same names for AVX2; kernels are written once over them
// (*_simd.h). Everything has internal linkage: a file built for a wide instruction set must not lend code to others.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace assay::backend::cpu {
namespace {

struct Vec {
  __m512 v;
};

// Rows and columns (in Vec) of a register tile: accumulators for 24 of the 32 registers.
constexpr int kTileRegisters = 24;
constexpr int kTileRows = 12;

static inline Vec splat(float x) noexcept { return {_mm512_set1_ps(x)}; }
static inline Vec load(const float* x) noexcept { return {_mm512_loadu_ps(x)}; }
static inline void store(float* y, Vec a) noexcept { _mm512_storeu_ps(y, a.v); }
static inline __mmask16 first_n(int64_t n) noexcept { return static_cast<__mmask16>((1u << n) - 1u); }
// The first n < 16 elements; the others are +0 and memory behind them is not touched.
static inline Vec load_first(const float* x, int64_t n) noexcept { return {_mm512_maskz_loadu_ps(first_n(n), x)}; }
static inline void store_first(float* y, Vec a, int64_t n) noexcept { _mm512_mask_storeu_ps(y, first_n(n), a.v); }

static inline Vec add(Vec a, Vec b) noexcept { return {_mm512_add_ps(a.v, b.v)}; }
static inline Vec sub(Vec a, Vec b) noexcept { return {_mm512_sub_ps(a.v, b.v)}; }
static inline Vec mul(Vec a, Vec b) noexcept { return {_mm512_mul_ps(a.v, b.v)}; }
static inline Vec div(Vec a, Vec b) noexcept { return {_mm512_div_ps(a.v, b.v)}; }
static inline Vec fma(Vec a, Vec b, Vec c) noexcept { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// a > b ? a : b in each lane, so that a NaN in a is passed over.
static inline Vec greater(Vec a, Vec b) noexcept { return {_mm512_max_ps(a.v, b.v)}; }

// a < b ? a : b in each lane, so that a NaN in b stays.
static inline Vec smaller(Vec a, Vec b) noexcept { return {_mm512_min_ps(a.v, b.v)}; }
// a > b ? yes : no in each lane; no where one is a NaN.
static inline Vec where_greater(Vec a, Vec b, Vec yes, Vec no) noexcept {
  return {_mm512_mask_mov_ps(no.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ), yes.v)};
}
static inline Vec without_sign(Vec a) noexcept { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
// a, whose sign bit is clear, with b's.
static inline Vec with_sign_of(Vec a, Vec b) noexcept {
  return {_mm512_or_ps(a.v, _mm512_and_ps(_mm512_set1_ps(-0.0f), b.v))};
}
static inline Vec negate(Vec a) noexcept { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
// p * 2^n, rounded once; n whole numbers (or NaN), small enough that the two halves of num::exp lose nothing.
static inline Vec times_power_of_two(Vec p, Vec n, Vec /*n plus the rounding constant*/) noexcept {
  return {_mm512_scalef_ps(p.v, n.v)};
}

static inline Vec load_half(const void* x) noexcept {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(x)))};
}
static inline void store_half(void* y, Vec a) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(y), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline Vec load_int8(const void* x) noexcept {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(x))))};
}

// Lanes begin <= i < end of a, other where not.
static inline Vec within(Vec a, int64_t begin, int64_t end, Vec other) noexcept {
  const uint32_t below_end = end >= 16 ? 0xFFFFu : end <= 0 ? 0u : (1u << end) - 1u;
  const uint32_t below_begin = begin >= 16 ? 0xFFFFu : begin <= 0 ? 0u : (1u << begin) - 1u;
  return {_mm512_mask_mov_ps(other.v, static_cast<__mmask16>(below_end & ~below_begin), a.v)};
}

struct Pair {
  Vec first, second;
};
// Elements at even and at odd places of 32 in a row, and back.
static inline Pair unzip(Vec low, Vec high) noexcept {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {{_mm512_permutex2var_ps(low.v, even, high.v)}, {_mm512_permutex2var_ps(low.v, odd, high.v)}};
}
static inline Pair zip(Vec even, Vec odd) noexcept {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return {{_mm512_permutex2var_ps(even.v, low, odd.v)}, {_mm512_permutex2var_ps(even.v, high, odd.v)}};
}

// Lanes32 (num/lanes.h) whose lanes 0..15 are low and 16..31 high.
static inline float fold(Vec low, Vec high) noexcept {
  const __m512 sixteen = _mm512_add_ps(low.v, high.v);
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sixteen), _mm512_extractf32x8_ps(sixteen, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
static inline float largest(Vec a) noexcept {  // no lane may be NaN
  return _mm512_reduce_max_ps(a.v);
}
static inline float square_root(float x) noexcept { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
static inline float half_bits_to_float(uint16_t bits) noexcept {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

}  // namespace
}  // namespace assay::backend::cpu
