// Sixteen floats at a time with AVX2, FMA and F16C: pairs of registers. simd_avx512.h offers the same names; kernels
// are written once over them (*_simd.h). Everything has internal linkage: a file built for a wide instruction set must
// not lend code to others.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace assay::backend::cpu {
namespace {

struct Vec {
  __m256 a, b;
};

// Rows times columns (in Vec) of a register tile: accumulators for 12 of the 16 registers.
constexpr int kTileRegisters = 6;
constexpr int kTileRows = 6;

static inline Vec splat(float x) noexcept { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline Vec load(const float* x) noexcept { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
static inline void store(float* y, Vec x) noexcept {
  _mm256_storeu_ps(y, x.a);
  _mm256_storeu_ps(y + 8, x.b);
}
// Lane i is all ones where begin <= i + offset < end.
static inline __m256i lanes_within(int64_t offset, int64_t begin, int64_t end) noexcept {
  const __m256i lane =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(static_cast<int>(offset)));
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(begin)), lane),
                             _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(end)), lane));
}
// The first n < 16 elements; the others are +0 and memory behind them is not touched.
static inline Vec load_first(const float* x, int64_t n) noexcept {
  return {_mm256_maskload_ps(x, lanes_within(0, 0, n)), _mm256_maskload_ps(x + 8, lanes_within(8, 0, n))};
}
static inline void store_first(float* y, Vec x, int64_t n) noexcept {
  _mm256_maskstore_ps(y, lanes_within(0, 0, n), x.a);
  _mm256_maskstore_ps(y + 8, lanes_within(8, 0, n), x.b);
}

static inline Vec add(Vec x, Vec y) noexcept { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline Vec sub(Vec x, Vec y) noexcept { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline Vec mul(Vec x, Vec y) noexcept { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline Vec div(Vec x, Vec y) noexcept { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline Vec fma(Vec x, Vec y, Vec z) noexcept {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
// x > y ? x : y in each lane, so that a NaN in x is passed over.
static inline Vec greater(Vec x, Vec y) noexcept { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }

// x < y ? x : y in each lane, so that a NaN in y stays.
static inline Vec smaller(Vec x, Vec y) noexcept { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
// a > b ? yes : no in each lane; no where one is a NaN.
static inline Vec where_greater(Vec a, Vec b, Vec yes, Vec no) noexcept {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(a.a, b.a, _CMP_GT_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(a.b, b.b, _CMP_GT_OQ))};
}
static inline Vec without_sign(Vec x) noexcept {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
// x, whose sign bit is clear, with y's.
static inline Vec with_sign_of(Vec x, Vec y) noexcept {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(x.a, _mm256_and_ps(sign, y.a)), _mm256_or_ps(x.b, _mm256_and_ps(sign, y.b))};
}
static inline Vec negate(Vec x) noexcept {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}
// p * 2^n in two halves, as num::exp does it. shifted: n plus the rounding constant 1.5 * 2^23, whose low bits are n.
static inline __m256 times_power_of_two(__m256 p, __m256 shifted) noexcept {
  const __m256i count = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4B400000));
  const __m256i half = _mm256_srai_epi32(count, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i scale_1 = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i scale_2 = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(count, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(scale_1)), _mm256_castsi256_ps(scale_2));
}
static inline Vec times_power_of_two(Vec p, Vec /*n*/, Vec shifted) noexcept {
  return {times_power_of_two(p.a, shifted.a), times_power_of_two(p.b, shifted.b)};
}

static inline Vec load_half(const void* x) noexcept {
  const auto* p = static_cast<const __m128i*>(x);
  return {_mm256_cvtph_ps(_mm_loadu_si128(p)), _mm256_cvtph_ps(_mm_loadu_si128(p + 1))};
}
static inline void store_half(void* y, Vec x) noexcept {
  auto* p = static_cast<__m128i*>(y);
  _mm_storeu_si128(p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128(p + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline Vec load_int8(const void* x) noexcept {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(x));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

// Lanes begin <= i < end of x, other where not.
static inline Vec within(Vec x, int64_t begin, int64_t end, Vec other) noexcept {
  return {_mm256_blendv_ps(other.a, x.a, _mm256_castsi256_ps(lanes_within(0, begin, end))),
          _mm256_blendv_ps(other.b, x.b, _mm256_castsi256_ps(lanes_within(8, begin, end)))};
}

struct Pair {
  Vec first, second;
};
// Elements at even and at odd places of 32 in a row, and back.
static inline __m256 in_order(__m256 x) noexcept {  // undoes what shuffles within 128 bits leave
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8));
}
static inline Pair unzip(Vec low, Vec high) noexcept {
  return {{in_order(_mm256_shuffle_ps(low.a, low.b, 0x88)), in_order(_mm256_shuffle_ps(high.a, high.b, 0x88))},
          {in_order(_mm256_shuffle_ps(low.a, low.b, 0xDD)), in_order(_mm256_shuffle_ps(high.a, high.b, 0xDD))}};
}
static inline Vec zip_eight(__m256 even, __m256 odd) noexcept {
  const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
static inline Pair zip(Vec even, Vec odd) noexcept { return {zip_eight(even.a, odd.a), zip_eight(even.b, odd.b)}; }

// Lanes32 (num/lanes.h) whose lanes 0..15 are low and 16..31 high.
static inline float fold(Vec low, Vec high) noexcept {
  const Vec sixteen = add(low, high);
  const __m256 eight = _mm256_add_ps(sixteen.a, sixteen.b);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
static inline float largest(Vec x) noexcept {  // no lane may be NaN
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
static inline float square_root(float x) noexcept { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
static inline float half_bits_to_float(uint16_t bits) noexcept {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

}  // namespace
}  // namespace assay::backend::cpu
