// Sixteen candidates in two AVX2 registers: PlainLanes (lanes_plain.h) with the same bits.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace assay::quant::encode {
namespace {  // compiled for AVX2: nothing here may be handed to another file

// The operations of eight that a search needs.
struct Avx2Narrow {
  static constexpr int kLanes = 8;
  __m256 a;

  static Avx2Narrow splat(float x) noexcept { return {_mm256_set1_ps(x)}; }
  static Avx2Narrow load(const float* x) noexcept { return {_mm256_loadu_ps(x)}; }
  void store(float* out) const noexcept { _mm256_storeu_ps(out, a); }
  friend Avx2Narrow operator+(const Avx2Narrow& x, const Avx2Narrow& y) noexcept { return {_mm256_add_ps(x.a, y.a)}; }
  friend Avx2Narrow operator-(const Avx2Narrow& x, const Avx2Narrow& y) noexcept { return {_mm256_sub_ps(x.a, y.a)}; }
  friend Avx2Narrow operator*(const Avx2Narrow& x, const Avx2Narrow& y) noexcept { return {_mm256_mul_ps(x.a, y.a)}; }
  static Avx2Narrow min(const Avx2Narrow& x, const Avx2Narrow& y) noexcept { return {_mm256_min_ps(x.a, y.a)}; }
  static Avx2Narrow max(const Avx2Narrow& x, const Avx2Narrow& y) noexcept { return {_mm256_max_ps(x.a, y.a)}; }
  static Avx2Narrow where_above(const Avx2Narrow& x, const Avx2Narrow& t, const Avx2Narrow& v) noexcept {
    return {_mm256_and_ps(_mm256_cmp_ps(x.a, t.a, _CMP_GT_OQ), v.a)};
  }
  static Avx2Narrow inverse(const Avx2Narrow& x) noexcept {
    const __m256 zero = _mm256_setzero_ps();
    return {_mm256_andnot_ps(_mm256_cmp_ps(x.a, zero, _CMP_EQ_OQ), _mm256_div_ps(_mm256_set1_ps(1.0f), x.a))};
  }
  int first_smallest() const noexcept {
    const __m256 m4 = _mm256_min_ps(a, _mm256_permute2f128_ps(a, a, 1)),
                 m2 = _mm256_min_ps(m4, _mm256_permute_ps(m4, 0x4E));
    const __m256 m1 = _mm256_min_ps(m2, _mm256_permute_ps(m2, 0xB1));
    return __builtin_ctz(static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, m1, _CMP_EQ_OQ))));
  }
};

struct Avx2Lanes {
  static constexpr int kLanes = 16;
  using Narrow = Avx2Narrow;
  __m256 a, b;

  static Avx2Lanes splat(float x) noexcept { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Avx2Lanes load(const float* x) noexcept { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
  void store(float* out) const noexcept {
    _mm256_storeu_ps(out, a);
    _mm256_storeu_ps(out + 8, b);
  }
  friend Avx2Lanes operator+(const Avx2Lanes& x, const Avx2Lanes& y) noexcept {
    return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
  }
  friend Avx2Lanes operator-(const Avx2Lanes& x, const Avx2Lanes& y) noexcept {
    return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
  }
  friend Avx2Lanes operator*(const Avx2Lanes& x, const Avx2Lanes& y) noexcept {
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
  }
  friend Avx2Lanes operator/(const Avx2Lanes& x, const Avx2Lanes& y) noexcept {
    return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
  }
  static Avx2Lanes min(const Avx2Lanes& x, const Avx2Lanes& y) noexcept {
    return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
  }
  static Avx2Lanes max(const Avx2Lanes& x, const Avx2Lanes& y) noexcept {
    return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
  }
  static Avx2Lanes where_above(const Avx2Lanes& x, const Avx2Lanes& t, const Avx2Lanes& v) noexcept {
    return {_mm256_and_ps(_mm256_cmp_ps(x.a, t.a, _CMP_GT_OQ), v.a),
            _mm256_and_ps(_mm256_cmp_ps(x.b, t.b, _CMP_GT_OQ), v.b)};
  }
  static Avx2Lanes select_above(const Avx2Lanes& x, const Avx2Lanes& t, const Avx2Lanes& v,
                                const Avx2Lanes& other) noexcept {
    return {_mm256_blendv_ps(other.a, v.a, _mm256_cmp_ps(x.a, t.a, _CMP_GT_OQ)),
            _mm256_blendv_ps(other.b, v.b, _mm256_cmp_ps(x.b, t.b, _CMP_GT_OQ))};
  }
  static Avx2Lanes inverse(const Avx2Lanes& x) noexcept {
    const __m256 one = _mm256_set1_ps(1.0f), zero = _mm256_setzero_ps();
    return {_mm256_andnot_ps(_mm256_cmp_ps(x.a, zero, _CMP_EQ_OQ), _mm256_div_ps(one, x.a)),
            _mm256_andnot_ps(_mm256_cmp_ps(x.b, zero, _CMP_EQ_OQ), _mm256_div_ps(one, x.b))};
  }
  static Avx2Lanes half(const Avx2Lanes& x) noexcept {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT;
    return {_mm256_cvtph_ps(_mm256_cvtps_ph(x.a, kNearest)), _mm256_cvtph_ps(_mm256_cvtps_ph(x.b, kNearest))};
  }
  float sum() const noexcept {
    const __m256 s8 = _mm256_add_ps(a, b);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1)),
                 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
  }
  float lowest() const noexcept {
    const __m256 m8 = _mm256_min_ps(a, b);
    const __m128 m4 = _mm_min_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1)),
                 m2 = _mm_min_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_min_ss(m2, _mm_movehdup_ps(m2)));
  }
  float highest() const noexcept {
    const __m256 m8 = _mm256_max_ps(a, b);
    const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1)),
                 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
  }
  static uint16_t half_bits(float x) noexcept {
    return static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0));
  }
  static float from_half_bits(uint16_t x) noexcept { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(x))); }
  int first_smallest() const noexcept {
    const __m256 m8 = _mm256_min_ps(a, b);
    const __m256 m4 = _mm256_min_ps(m8, _mm256_permute2f128_ps(m8, m8, 1));
    const __m256 m2 = _mm256_min_ps(m4, _mm256_permute_ps(m4, 0x4E));
    const __m256 m1 = _mm256_min_ps(m2, _mm256_permute_ps(m2, 0xB1));
    const int mask = _mm256_movemask_ps(_mm256_cmp_ps(a, m1, _CMP_EQ_OQ)) |
                     (_mm256_movemask_ps(_mm256_cmp_ps(b, m1, _CMP_EQ_OQ)) << 8);
    return __builtin_ctz(static_cast<unsigned>(mask));
  }
};

}  // namespace
}  // namespace assay::quant::encode
