// The float scales at the head of 8 blocks of 32, for the matrix-vector kernels of AVX2 and above. Included by kernel
// files only; everything here is local to the file that includes it.
#pragma once

#include "backend/cpu/gemv/block_scales.h"
#include "backend/cpu/gemv/half_scales.h"
#include "backend/cpu/linear/linear.h"

namespace assay::backend::cpu {
namespace {

inline __m128i load_heads4(const std::byte* const* p) noexcept {
  const auto head = [&](int lane) {
    int32_t bytes;
    __builtin_memcpy(&bytes, p[lane], 4);
    return bytes;
  };
  __m128i v = _mm_cvtsi32_si128(head(0));
  v = _mm_insert_epi32(v, head(1), 1);
  v = _mm_insert_epi32(v, head(2), 2);
  return _mm_insert_epi32(v, head(3), 3);
}

inline Heads load_heads(const std::byte* const* p) noexcept { return {load_heads4(p), load_heads4(p + 4)}; }

// 2^(e - 128) of the first byte, as MXFP4 has it; subnormal for 0 and 1.
inline __m256 power_scales(const Heads& h) noexcept {
  const __m256i e = _mm256_and_si256(_mm256_set_m128i(h.lanes4, h.lanes0), _mm256_set1_epi32(0xFF));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

struct OneScale {
  static constexpr bool kHasMin = false;
  static Scales scales(const std::byte* const* p) noexcept { return {half_scales(load_heads(p)), _mm256_setzero_ps()}; }
};

struct ScaleAndMin {
  static constexpr bool kHasMin = true;
  static Scales scales(const std::byte* const* p) noexcept {
    const Heads heads = load_heads(p);
    return {half_scales(heads), half_minima(heads)};
  }
};

struct PowerScale {
  static constexpr bool kHasMin = false;
  static Scales scales(const std::byte* const* p) noexcept {
    return {power_scales(load_heads(p)), _mm256_setzero_ps()};
  }
};

}  // namespace
}  // namespace assay::backend::cpu
