// Sixteen candidates in one AVX-512 register: PlainLanes (lanes_plain.h) with the same bits. Where eight are enough,
// those of AVX2.
#pragma once

#include "quant/encode/lanes_avx2.h"

namespace assay::quant::encode {
namespace {  // compiled for AVX-512: nothing here may be handed to another file

struct Avx512Lanes {
  static constexpr int kLanes = 16;
  using Narrow = Avx2Narrow;
  __m512 a;

  static Avx512Lanes splat(float x) noexcept { return {_mm512_set1_ps(x)}; }
  static Avx512Lanes load(const float* x) noexcept { return {_mm512_loadu_ps(x)}; }
  void store(float* out) const noexcept { _mm512_storeu_ps(out, a); }
  friend Avx512Lanes operator+(const Avx512Lanes& x, const Avx512Lanes& y) noexcept {
    return {_mm512_add_ps(x.a, y.a)};
  }
  friend Avx512Lanes operator-(const Avx512Lanes& x, const Avx512Lanes& y) noexcept {
    return {_mm512_sub_ps(x.a, y.a)};
  }
  friend Avx512Lanes operator*(const Avx512Lanes& x, const Avx512Lanes& y) noexcept {
    return {_mm512_mul_ps(x.a, y.a)};
  }
  friend Avx512Lanes operator/(const Avx512Lanes& x, const Avx512Lanes& y) noexcept {
    return {_mm512_div_ps(x.a, y.a)};
  }
  static Avx512Lanes min(const Avx512Lanes& x, const Avx512Lanes& y) noexcept { return {_mm512_min_ps(x.a, y.a)}; }
  static Avx512Lanes max(const Avx512Lanes& x, const Avx512Lanes& y) noexcept { return {_mm512_max_ps(x.a, y.a)}; }
  static Avx512Lanes where_above(const Avx512Lanes& x, const Avx512Lanes& t, const Avx512Lanes& v) noexcept {
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.a, t.a, _CMP_GT_OQ), v.a)};
  }
  static Avx512Lanes select_above(const Avx512Lanes& x, const Avx512Lanes& t, const Avx512Lanes& v,
                                  const Avx512Lanes& other) noexcept {
    return {_mm512_mask_mov_ps(other.a, _mm512_cmp_ps_mask(x.a, t.a, _CMP_GT_OQ), v.a)};
  }
  static Avx512Lanes inverse(const Avx512Lanes& x) noexcept {
    return {_mm512_maskz_div_ps(_mm512_cmp_ps_mask(x.a, _mm512_setzero_ps(), _CMP_NEQ_UQ), _mm512_set1_ps(1.0f), x.a)};
  }
  static Avx512Lanes half(const Avx512Lanes& x) noexcept {
    return {_mm512_cvtph_ps(_mm512_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT))};
  }
  float sum() const noexcept { return halves().sum(); }
  float lowest() const noexcept { return halves().lowest(); }
  float highest() const noexcept { return halves().highest(); }
  static uint16_t half_bits(float x) noexcept { return Avx2Lanes::half_bits(x); }
  static float from_half_bits(uint16_t x) noexcept { return Avx2Lanes::from_half_bits(x); }
  int first_smallest() const noexcept {
    const Avx2Lanes two = halves();
    const __m256 m8 = _mm256_min_ps(two.a, two.b), m4 = _mm256_min_ps(m8, _mm256_permute2f128_ps(m8, m8, 1));
    const __m256 m2 = _mm256_min_ps(m4, _mm256_permute_ps(m4, 0x4E)),
                 m1 = _mm256_min_ps(m2, _mm256_permute_ps(m2, 0xB1));
    const __mmask16 equal = _mm512_cmp_ps_mask(a, _mm512_broadcastss_ps(_mm256_castps256_ps128(m1)), _CMP_EQ_OQ);
    return __builtin_ctz(static_cast<unsigned>(equal));
  }

 private:
  Avx2Lanes halves() const noexcept {
    return {_mm512_castps512_ps256(a), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1))};
  }
};

}  // namespace
}  // namespace assay::quant::encode
