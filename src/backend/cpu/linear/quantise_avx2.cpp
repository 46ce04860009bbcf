// Activations to integers by AVX2: the bits of quant::quantise_row_ref.
#include <immintrin.h>

#include "backend/cpu/linear/quantise_loops.h"

namespace assay::backend::cpu {
namespace {

// The bits of the largest magnitude of n elements; at least those of infinity if one is NaN.
inline uint32_t magnitude_bits(const float* x, int64_t n) noexcept {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i most = _mm256_setzero_si256();
  for (int64_t j = 0; j < n; j += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + j));
    most = _mm256_max_epu32(most, _mm256_and_si256(bits, magnitude));
  }
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

inline __m256i clamp(__m256i x, int bound) noexcept {
  return _mm256_max_epi32(_mm256_min_epi32(x, _mm256_set1_epi32(bound)), _mm256_set1_epi32(-bound));
}

// 32 integers to bytes, in order.
inline __m256i pack_32(const __m256i* v) noexcept {
  const __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  return _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Of 32 bytes.
inline Halves sum_halves(__m256i bytes) noexcept {
  const __m256i words = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
  __m256i sums = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4E));
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xB1));
  return {_mm_cvtsi128_si32(_mm256_castsi256_si128(sums)), _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1))};
}

inline void quantise_32(const float* x, float r, bool by_16, const Place& out) noexcept {
  __m256i q[4], l[4];
  const __m256 factor = _mm256_set1_ps(r);
  for (int i = 0; i < 4; ++i) {
    const __m256 v = _mm256_loadu_ps(x + 8 * i);
    q[i] = clamp(_mm256_cvtps_epi32(_mm256_mul_ps(v, factor)), 127);
    const __m256 rest = _mm256_fmsub_ps(v, factor, _mm256_cvtepi32_ps(q[i]));
    l[i] = clamp(_mm256_cvtps_epi32(_mm256_mul_ps(rest, _mm256_set1_ps(128))), 64);
  }
  const __m256i first = pack_32(q);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q), first);
  put_sums(sum_halves(first), by_16, out.q_sums);
  if (out.l == nullptr) return;
  const __m256i refined = pack_32(l);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.l), refined);
  put_sums(sum_halves(refined), by_16, out.l_sums);
}

}  // namespace

void quantise_rows_avx2(tensor::ConstMat x, const quant::Activations& out, int64_t row_begin,
                        int64_t row_end) noexcept {
  quantise_rows_with<magnitude_bits, quantise_32>(x, out, row_begin, row_end);
}

}  // namespace assay::backend::cpu
