// The scales of superblocks of 256: the floats d and m of 8 of them, and the integer scales and minima inside one as
// words. Included by kernel files only (AVX2 is enough); everything here is local to the file that includes it.
#pragma once

#include <immintrin.h>

#include <cstddef>

#include "backend/cpu/gemv/block_scales.h"
#include "backend/cpu/gemv/gemv_prepare.h"
#include "backend/cpu/gemv/packed_scales.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

// The half-precision numbers at p[lane] + offset.
inline __m256 load_halves(const std::byte* const* p, size_t offset) noexcept {
  const auto half = [&](int lane) {
    int16_t bits;
    __builtin_memcpy(&bits, p[lane] + offset, 2);
    return bits;
  };
  return _mm256_cvtph_ps(_mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)));
}

// Block: the format's of quant/, which says where everything lies.
template <class Block>
struct OneScale {
  static constexpr bool kHasMin = false;
  static int64_t block_bytes(const LinearTask&) noexcept { return sizeof(Block); }
  static Scales scales(const LinearTask&, const std::byte* const* p) noexcept {
    return {load_halves(p, offsetof(Block, d)), _mm256_setzero_ps()};
  }
};

// The second number is what is subtracted: m = -d_min.
template <class Block>
struct ScaleAndMin {
  static constexpr bool kHasMin = true;
  static int64_t block_bytes(const LinearTask&) noexcept { return sizeof(Block); }
  static Scales scales(const LinearTask&, const std::byte* const* p) noexcept {
    return {load_halves(p, offsetof(Block, d)),
            _mm256_xor_ps(load_halves(p, offsetof(Block, d_min)), _mm256_set1_ps(-0.0f))};
  }
};

// Formats without a minimum whose blocks the plain code unpacks.
struct AnyScale {
  static constexpr bool kHasMin = false;
  static int64_t block_bytes(const LinearTask& task) noexcept { return task.row_bytes / (task.k / 256); }
  static Scales scales(const LinearTask& task, const std::byte* const* p) noexcept {
    alignas(32) float d[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) d[lane] = task.format->scales(p[lane]).d;
    return {_mm256_load_ps(d), _mm256_setzero_ps()};
  }
};

// The 16 scales and 16 minima of a superblock, of every group of 16 weights, as 16-bit words. Where the format has no
// minimum, `min` is -offset * scale for weights stored with an offset, and its sum with the activations' sums belongs
// to I.
struct SubScales {
  __m256i scale, min;
};

// Bytes 0..7 twice each, as words.
inline __m256i widen_pairs(__m128i bytes) noexcept { return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes)); }

inline SubScales k_scales(const std::byte* packed) noexcept {
  const KScaleBytes bytes = k_scale_bytes(packed);
  return {widen_pairs(_mm_cvtsi64_si128(static_cast<int64_t>(bytes.scales))),
          widen_pairs(_mm_cvtsi64_si128(static_cast<int64_t>(bytes.minima)))};
}

inline SubScales q2_k_scales(const std::byte* packed) noexcept {
  const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(packed)));
  return {_mm256_and_si256(bytes, _mm256_set1_epi16(15)), _mm256_srli_epi16(bytes, 4)};
}

inline __m256i times_minus_4(__m256i scale) noexcept {
  return _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(scale, 2));
}

inline SubScales q3_k_scales(const std::byte* packed) noexcept {
  const Q3KScaleBytes scales = q3_k_scale_bytes(packed);
  const __m128i bytes = _mm_set_epi64x(static_cast<int64_t>(scales.second), static_cast<int64_t>(scales.first));
  const __m256i scale = _mm256_cvtepi8_epi16(_mm_sub_epi8(bytes, _mm_set1_epi8(32)));
  return {scale, times_minus_4(scale)};
}

inline SubScales q6_k_scales(const std::byte* packed) noexcept {
  const __m256i scale = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(packed)));
  return {scale, _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(scale, 5))};
}

// The pairs of top bits and the nibbles of IQ4_XS: 8 scales around 32.
inline SubScales iq4_xs_scales(const std::byte* block) noexcept {
  uint16_t high;
  uint32_t low;
  __builtin_memcpy(&high, block + offsetof(quant::BlockIQ4_XS, scales_high), 2);
  __builtin_memcpy(&low, block + offsetof(quant::BlockIQ4_XS, scales_low), 4);
  const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i twice = _mm256_slli_epi32(place, 1), four_times = _mm256_slli_epi32(place, 2);
  const __m256i nibble = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int32_t>(low)), four_times),
                                          _mm256_set1_epi32(15));
  const __m256i pair = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(high), twice), _mm256_set1_epi32(3));
  const __m256i scale = _mm256_sub_epi32(_mm256_or_si256(nibble, _mm256_slli_epi32(pair, 4)), _mm256_set1_epi32(32));
  const __m256i low_word = _mm256_and_si256(scale, _mm256_set1_epi32(0xFFFF));
  return {_mm256_or_si256(low_word, _mm256_slli_epi32(scale, 16)), _mm256_setzero_si256()};
}

}  // namespace
}  // namespace assay::backend::cpu
