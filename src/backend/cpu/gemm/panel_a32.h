// Rows of the formats with blocks of 32, unpacked for the matrix-matrix kernels: 32 bytes a block, element order, as
// weight + kOffset, unsigned. Included by kernel files only (AVX2 is enough); everything here is local to the file that
// includes it.
#pragma once

#include <immintrin.h>

#include "backend/cpu/linear/linear.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

// Block: of quant/, which says where everything lies.
template <class Block>
inline __m256i nibbles_32(const std::byte* p) noexcept {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + offsetof(Block, nibbles)));
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), _mm256_set1_epi8(15));
}

// 16 where the block's mask of 32 bits has the element's bit.
template <class Block>
inline __m256i fifth_bits_32(const std::byte* p) noexcept {
  int32_t mask;
  __builtin_memcpy(&mask, p + offsetof(Block, high_bits), 4);
  const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i bytes = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(mask), spread), bit);
  return _mm256_and_si256(_mm256_cmpeq_epi8(bytes, bit), _mm256_set1_epi8(16));
}

inline uint16_t load_16(const std::byte* p) noexcept {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return bits;
}

// d (and m where there is one) of 8 blocks that lie `stride` apart.
struct HalfScales {
  static __m256 halves(const std::byte* p, int64_t stride) noexcept {
    const auto at = [&](int64_t i) { return static_cast<int16_t>(load_16(p + i * stride)); };
    return _mm256_cvtph_ps(_mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)));
  }
  static __m256 d(const std::byte* p, int64_t stride) noexcept { return halves(p, stride); }
  static __m256 m(const std::byte* p, int64_t stride) noexcept { return halves(p + 2, stride); }
};

struct RowsQ4_0 : HalfScales {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ4_0), kOffset = 8;
  static constexpr bool kHasMin = false;
  static __m256i weights(const std::byte* p) noexcept { return nibbles_32<quant::BlockQ4_0>(p); }
};

struct RowsQ4_1 : HalfScales {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ4_1), kOffset = 0;
  static constexpr bool kHasMin = true;
  static __m256i weights(const std::byte* p) noexcept { return nibbles_32<quant::BlockQ4_1>(p); }
};

struct RowsQ5_0 : HalfScales {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ5_0), kOffset = 16;
  static constexpr bool kHasMin = false;
  static __m256i weights(const std::byte* p) noexcept {
    return _mm256_or_si256(nibbles_32<quant::BlockQ5_0>(p), fifth_bits_32<quant::BlockQ5_0>(p));
  }
};

struct RowsQ5_1 : HalfScales {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ5_1), kOffset = 0;
  static constexpr bool kHasMin = true;
  static __m256i weights(const std::byte* p) noexcept {
    return _mm256_or_si256(nibbles_32<quant::BlockQ5_1>(p), fifth_bits_32<quant::BlockQ5_1>(p));
  }
};

struct RowsQ8_0 : HalfScales {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ8_0), kOffset = 128;
  static constexpr bool kHasMin = false;
  static __m256i weights(const std::byte* p) noexcept {
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + offsetof(quant::BlockQ8_0, q))),
                            _mm256_set1_epi8(-128));
  }
};

struct RowsIQ4_NL : HalfScales {
  static constexpr int kBlockBytes = sizeof(quant::BlockIQ4_NL), kOffset = 128;
  static constexpr bool kHasMin = false;
  static __m128i levels() noexcept {
    return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  }  // signed
  static __m256i weights(const std::byte* p) noexcept {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_xor_si128(levels(), _mm_set1_epi8(-128))),
                               nibbles_32<quant::BlockIQ4_NL>(p));
  }
};

struct RowsMXFP4 {
  static constexpr int kBlockBytes = sizeof(quant::BlockMXFP4), kOffset = 12;
  static constexpr bool kHasMin = false;
  static __m128i levels() noexcept {
    return _mm_add_epi8(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), _mm_set1_epi8(kOffset));
  }
  static __m256i weights(const std::byte* p) noexcept {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels()), nibbles_32<quant::BlockMXFP4>(p));
  }
  // 2^(e - 128) of the first byte; subnormal for 0 and 1.
  static __m256 d(const std::byte* p, int64_t stride) noexcept {
    const auto at = [&](int64_t i) { return static_cast<int32_t>(p[i * stride]); };
    const __m256i e = _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
  }
  static __m256 m(const std::byte*, int64_t) noexcept { return _mm256_setzero_ps(); }
};

// result.of<Rows>() for the format's class, {} for a format of another kind.
template <class Result>
auto with_rows_a32(tensor::DType dtype, const Result& result) noexcept -> decltype(result.template of<RowsQ4_0>()) {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_0: return result.template of<RowsQ4_0>();
    case DType::Q4_1: return result.template of<RowsQ4_1>();
    case DType::Q5_0: return result.template of<RowsQ5_0>();
    case DType::Q5_1: return result.template of<RowsQ5_1>();
    case DType::Q8_0: return result.template of<RowsQ8_0>();
    case DType::IQ4_NL: return result.template of<RowsIQ4_NL>();
    case DType::MXFP4: return result.template of<RowsMXFP4>();
    default: return {};
  }
}

}  // namespace
}  // namespace assay::backend::cpu
