// Superblocks of 256 unpacked to bytes by AVX2, a half (128 elements, w[4] of 32 in order) at a time. Included by
// kernel files only; everything here is local to the file that includes it. Each class says of its format:
//   kHasMin, block_bytes(), scales()   as in superblock_scales.h
//   open(), sub_scales(), unpack()     a superblock, its integer scales and its weights
//   kSubBlock                          elements under one integer scale
//   kWeightMax, kScaleMax              bounds of the integers' magnitudes
#pragma once

#include "backend/cpu/gemv/superblock_scales.h"

namespace assay::backend::cpu {
namespace {

inline __m256i load_256(const void* p) noexcept { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Bits of the bytes as 0 or `value`, 32 elements for each bit number.
inline __m256i where_bit(__m256i bytes, int bit, int value) noexcept {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(1 << bit));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, mask), mask),
                          _mm256_set1_epi8(static_cast<char>(value)));
}

// A superblock is read where it lies. Weights are unsigned, as weight + kOffset, unless kSigned.
struct InPlace {
  static constexpr bool kSigned = false;
  static constexpr int kOffset = 0;
  using Block = const std::byte*;
  static Block open(const LinearTask&, const std::byte* p) noexcept { return p; }
};

inline void unpack_pairs(const std::byte* p, __m256i* w) noexcept {
  const __m256i bytes = load_256(p), mask = _mm256_set1_epi8(3);
  w[0] = _mm256_and_si256(bytes, mask);
  w[1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 2), mask);
  w[2] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
  w[3] = _mm256_and_si256(_mm256_srli_epi16(bytes, 6), mask);
}

inline void unpack_nibbles(const std::byte* p, __m256i* w) noexcept {
  const __m256i mask = _mm256_set1_epi8(15);
  for (int i = 0; i < 2; ++i) {
    const __m256i bytes = load_256(p + 32 * i);
    w[2 * i] = _mm256_and_si256(bytes, mask);
    w[2 * i + 1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
  }
}

struct UnpackQ2_K : ScaleAndMin<quant::BlockQ2_K>, InPlace {
  static constexpr int kWeightMax = 3, kScaleMax = 15, kSubBlock = 16;
  static SubScales sub_scales(Block p) noexcept { return q2_k_scales(p + offsetof(quant::BlockQ2_K, sub_scales)); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    unpack_pairs(p + offsetof(quant::BlockQ2_K, q) + 32 * half, w);
  }
};

struct UnpackQ3_K : OneScale<quant::BlockQ3_K>, InPlace {
  static constexpr int kWeightMax = 4, kScaleMax = 32, kSubBlock = 16;
  static constexpr int kOffset = 4;
  static SubScales sub_scales(Block p) noexcept { return q3_k_scales(p + offsetof(quant::BlockQ3_K, sub_scales)); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    unpack_pairs(p + offsetof(quant::BlockQ3_K, q) + 32 * half, w);
    const __m256i high = load_256(p + offsetof(quant::BlockQ3_K, high_bits));
    for (int i = 0; i < 4; ++i) w[i] = _mm256_or_si256(w[i], where_bit(high, 4 * half + i, 4));
  }
};

struct UnpackQ4_K : ScaleAndMin<quant::BlockQ4_K>, InPlace {
  static constexpr int kWeightMax = 15, kScaleMax = 63, kSubBlock = 32;
  static SubScales sub_scales(Block p) noexcept { return k_scales(p + offsetof(quant::BlockQ4_K, sub_scales)); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    unpack_nibbles(p + offsetof(quant::BlockQ4_K, nibbles) + 64 * half, w);
  }
};

struct UnpackQ5_K : ScaleAndMin<quant::BlockQ5_K>, InPlace {
  static constexpr int kWeightMax = 31, kScaleMax = 63, kSubBlock = 32;
  static SubScales sub_scales(Block p) noexcept { return k_scales(p + offsetof(quant::BlockQ5_K, sub_scales)); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    unpack_nibbles(p + offsetof(quant::BlockQ5_K, nibbles) + 64 * half, w);
    const __m256i high = load_256(p + offsetof(quant::BlockQ5_K, high_bits));
    for (int i = 0; i < 4; ++i) w[i] = _mm256_or_si256(w[i], where_bit(high, 4 * half + i, 16));
  }
};

struct UnpackQ6_K : OneScale<quant::BlockQ6_K>, InPlace {
  static constexpr int kWeightMax = 32, kScaleMax = 128, kSubBlock = 16;
  static constexpr int kOffset = 32;
  static SubScales sub_scales(Block p) noexcept { return q6_k_scales(p + offsetof(quant::BlockQ6_K, sub_scales)); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8(0x30);
    const std::byte* nibbles = p + offsetof(quant::BlockQ6_K, nibbles) + 64 * half;
    const __m256i first = load_256(nibbles), second = load_256(nibbles + 32),
                  pairs = load_256(p + offsetof(quant::BlockQ6_K, high_bits) + 32 * half);
    w[0] = _mm256_or_si256(_mm256_and_si256(first, low), _mm256_and_si256(_mm256_slli_epi16(pairs, 4), high));
    w[1] = _mm256_or_si256(_mm256_and_si256(second, low), _mm256_and_si256(_mm256_slli_epi16(pairs, 2), high));
    w[2] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(first, 4), low), _mm256_and_si256(pairs, high));
    w[3] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(second, 4), low),
                           _mm256_and_si256(_mm256_srli_epi16(pairs, 2), high));
  }
};

struct UnpackIQ4_XS : OneScale<quant::BlockIQ4_XS>, InPlace {
  static constexpr int kWeightMax = 127, kScaleMax = 32, kSubBlock = 32;
  static constexpr bool kSigned = true;
  static SubScales sub_scales(Block p) noexcept { return iq4_xs_scales(p); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    const __m128i levels = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    const __m128i mask = _mm_set1_epi8(15);
    for (int i = 0; i < 4; ++i) {
      const __m128i bytes = _mm_loadu_si128(
          reinterpret_cast<const __m128i*>(p + offsetof(quant::BlockIQ4_XS, nibbles) + 64 * half + 16 * i));
      w[i] = _mm256_set_m128i(_mm_shuffle_epi8(levels, _mm_and_si128(_mm_srli_epi16(bytes, 4), mask)),
                              _mm_shuffle_epi8(levels, _mm_and_si128(bytes, mask)));
    }
  }
};

// Codebook formats without a minimum: the plain code makes the integers.
struct UnpackAny : AnyScale {
  static constexpr int kWeightMax = 62, kScaleMax = 32, kSubBlock = 16;
  static constexpr bool kSigned = true;
  static constexpr int kOffset = 0;
  using Block = quant::Integers256;
  static Block open(const LinearTask& task, const std::byte* p) noexcept {
    Block integers;
    task.format->integers(p, integers);
    return integers;
  }
  static SubScales sub_scales(const Block& block) noexcept { return {load_256(block.scale), _mm256_setzero_si256()}; }
  static void unpack(const Block& block, int half, __m256i* w) noexcept {
    for (int i = 0; i < 4; ++i) w[i] = load_256(block.w + 128 * half + 32 * i);
  }
};

// result.of<Unpack>() for the format's class, {} for a format of another kind.
template <class Result>
auto with_unpack_a256(tensor::DType dtype, const Result& result) noexcept -> decltype(result.template of<UnpackAny>()) {
  using tensor::DType;
  switch (dtype) {
    case DType::Q2_K: return result.template of<UnpackQ2_K>();
    case DType::Q3_K: return result.template of<UnpackQ3_K>();
    case DType::Q4_K: return result.template of<UnpackQ4_K>();
    case DType::Q5_K: return result.template of<UnpackQ5_K>();
    case DType::Q6_K: return result.template of<UnpackQ6_K>();
    case DType::IQ4_XS: return result.template of<UnpackIQ4_XS>();
    case DType::IQ1_S:
    case DType::IQ2_XXS:
    case DType::IQ2_XS:
    case DType::IQ2_S:
    case DType::IQ3_XXS:
    case DType::IQ3_S:
    case DType::TQ1_0:
    case DType::TQ2_0: return result.template of<UnpackAny>();
    default: return {};
  }
}

}  // namespace
}  // namespace assay::backend::cpu
