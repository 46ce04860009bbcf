// Matrix-vector products of the formats with blocks of 32 by AVX2. vpmaddubsw adds two products of an unsigned and a
// signed byte in 16 bits and saturates: weights are either small and unsigned (an offset added), or signed with their
// sign moved to the activation.
#include "backend/cpu/gemm/block_heads.h"
#include "backend/cpu/gemv/gemv.h"
#include "backend/cpu/gemv/gemv_a32.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

// Elements 0..15 and 16..31 of two blocks, one block per 128 bits.
struct Pair {
  __m256i first, second;
};

// 16 bytes at p[i] + offset of lanes i and i + 4.
inline __m256i load_pair(const std::byte* const* p, int offset) noexcept {
  const auto at = [&](int lane) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p[lane] + offset)); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(at(0)), at(4), 1);
}

// Block: of quant/, which says where everything lies.
template <class Block>
inline Pair nibbles(const std::byte* const* p) noexcept {
  const __m256i bytes = load_pair(p, offsetof(Block, nibbles));
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(bytes, mask), _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask)};
}

// Adds 16 where the mask of 32 bits at kAtBits has the element's bit.
template <class Block>
inline Pair fifth_bits(Pair pair, const std::byte* const* p) noexcept {
  constexpr int kAtBits = offsetof(Block, high_bits);
  const __m256i heads = load_pair(p, 0);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i spread = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0101010101010101, 0));
  const __m256i first =
      _mm256_shuffle_epi8(heads, _mm256_add_epi8(spread, _mm256_set1_epi8(static_cast<char>(kAtBits))));
  const __m256i second =
      _mm256_shuffle_epi8(heads, _mm256_add_epi8(spread, _mm256_set1_epi8(static_cast<char>(kAtBits + 2))));
  const __m256i sixteen = _mm256_set1_epi8(16);
  const auto where = [&](__m256i bytes) {
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit), sixteen);
  };
  return {_mm256_or_si256(pair.first, where(first)), _mm256_or_si256(pair.second, where(second))};
}

inline Pair look_up(Pair pair, __m128i levels) noexcept {
  const __m256i table = _mm256_broadcastsi128_si256(levels);
  return {_mm256_shuffle_epi8(table, pair.first), _mm256_shuffle_epi8(table, pair.second)};
}

// Unsigned weights of at most kWeightMax: the products of both halves fit one 16-bit sum. Dwords, times `factor`.
template <int kWeightMax>
inline __m256i dot_unsigned(const Pair& w, __m256i q_first, __m256i q_second, int factor) noexcept {
  static_assert(4 * kWeightMax * 127 <= 32767);
  const __m256i sums =
      _mm256_add_epi16(_mm256_maddubs_epi16(w.first, q_first), _mm256_maddubs_epi16(w.second, q_second));
  return _mm256_madd_epi16(sums, _mm256_set1_epi16(static_cast<int16_t>(factor)));
}

// |w| <= 128 is an unsigned byte; a pair of products is at most 2 * 128 * 127.
inline __m256i dot_signed(const Pair& w, __m256i q_first, __m256i q_second, int factor) noexcept {
  static_assert(2 * 128 * 127 <= 32767);
  const __m256i factors = _mm256_set1_epi16(static_cast<int16_t>(factor));
  const __m256i first = _mm256_maddubs_epi16(_mm256_abs_epi8(w.first), _mm256_sign_epi8(q_first, w.first));
  const __m256i second = _mm256_maddubs_epi16(_mm256_abs_epi8(w.second), _mm256_sign_epi8(q_second, w.second));
  return _mm256_add_epi32(_mm256_madd_epi16(first, factors), _mm256_madd_epi16(second, factors));
}

template <class Unpack>
struct Dots : Unpack {
  static __m256i dot(const Pair& w, const int8_t* q, int factor) noexcept {
    const __m256i q_first = _mm256_load_si256(reinterpret_cast<const __m256i*>(q));
    const __m256i q_second = _mm256_load_si256(reinterpret_cast<const __m256i*>(q + 64));
    if constexpr (Unpack::kSigned) {
      return dot_signed(w, q_first, q_second, factor);
    } else {
      return dot_unsigned<Unpack::kWeightMax>(w, q_first, q_second, factor);
    }
  }

  template <int kPlanes, int kTokens>
  [[gnu::always_inline]] static void dots(const std::byte* const* p, const int8_t* q, __m256i* out) noexcept {
    __m256i sums[kTokens][4];
    for (int i = 0; i < 4; ++i) {  // lanes i and i + 4
      const Pair w = Unpack::pair(p + i);
      const int8_t* places = q + 128 * (i / 2) + 32 * (i % 2);
      for (int t = 0; t < kTokens; ++t, places += 256 * kPlanes) {
        sums[t][i] = dot(w, places, kPlanes == 2 ? 128 : 1);
        if constexpr (kPlanes == 2) sums[t][i] = _mm256_add_epi32(sums[t][i], dot(w, places + 256, 1));
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      const __m256i* s = sums[t];
      out[t] = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    }
  }
};

// Weights of whole bytes against both planes at once: widened to words, of which a product takes as many slots as of
// bytes, whose signs are in the way.
template <class Unpack>
struct WordDots : Dots<Unpack> {
  template <int kTokens>
  [[gnu::always_inline]] static void joined_dots(const std::byte* const* p, const int16_t* x, __m256i* out) noexcept {
    __m256i fours[kTokens][2];
    for (int half = 0; half < 2; ++half) {
      __m256i sums[kTokens][4];
      for (int i = 0; i < 4; ++i) {
        const int lane = 4 * half + i;
        const auto weights = [&](int at) {
          return _mm256_cvtepi8_epi16(
              _mm_loadu_si128(reinterpret_cast<const __m128i*>(p[lane] + Unpack::kBytesAt + at)));
        };
        const __m256i first = weights(0), second = weights(16);
        for (int t = 0; t < kTokens; ++t) {
          const auto* of_lane = reinterpret_cast<const __m256i*>(x + 32 * (kLanes * t + lane));
          sums[t][i] = _mm256_add_epi32(_mm256_madd_epi16(first, _mm256_load_si256(of_lane)),
                                        _mm256_madd_epi16(second, _mm256_load_si256(of_lane + 1)));
        }
      }
      for (int t = 0; t < kTokens; ++t) {
        fours[t][half] =
            _mm256_hadd_epi32(_mm256_hadd_epi32(sums[t][0], sums[t][1]), _mm256_hadd_epi32(sums[t][2], sums[t][3]));
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      out[t] = _mm256_add_epi32(_mm256_permute2x128_si256(fours[t][0], fours[t][1], 0x20),
                                _mm256_permute2x128_si256(fours[t][0], fours[t][1], 0x31));
    }
  }
};

struct UnpackQ4_0 : OneScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ4_0), kOffset = 8, kWeightMax = 15;
  static constexpr bool kSigned = false;
  static Pair pair(const std::byte* const* p) noexcept { return nibbles<quant::BlockQ4_0>(p); }
};

struct UnpackQ4_1 : ScaleAndMin {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ4_1), kOffset = 0, kWeightMax = 15;
  static constexpr bool kSigned = false;
  static Pair pair(const std::byte* const* p) noexcept { return nibbles<quant::BlockQ4_1>(p); }
};

struct UnpackQ5_0 : OneScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ5_0), kOffset = 16, kWeightMax = 31;
  static constexpr bool kSigned = false;
  static Pair pair(const std::byte* const* p) noexcept {
    return fifth_bits<quant::BlockQ5_0>(nibbles<quant::BlockQ5_0>(p), p);
  }
};

struct UnpackQ5_1 : ScaleAndMin {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ5_1), kOffset = 0, kWeightMax = 31;
  static constexpr bool kSigned = false;
  static Pair pair(const std::byte* const* p) noexcept {
    return fifth_bits<quant::BlockQ5_1>(nibbles<quant::BlockQ5_1>(p), p);
  }
};

struct UnpackQ8_0 : OneScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ8_0), kOffset = 0, kBytesAt = offsetof(quant::BlockQ8_0, q);
  static constexpr bool kSigned = true;
  static Pair pair(const std::byte* const* p) noexcept { return {load_pair(p, kBytesAt), load_pair(p, kBytesAt + 16)}; }
};

struct UnpackIQ4_NL : OneScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockIQ4_NL), kOffset = 0;
  static constexpr bool kSigned = true;
  static Pair pair(const std::byte* const* p) noexcept {
    return look_up(nibbles<quant::BlockIQ4_NL>(p),
                   _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
  }
};

struct UnpackMXFP4 : PowerScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockMXFP4), kOffset = 12, kWeightMax = 24;
  static constexpr bool kSigned = false;
  static Pair pair(const std::byte* const* p) noexcept {
    const __m128i levels = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return look_up(nibbles<quant::BlockMXFP4>(p), _mm_add_epi8(levels, _mm_set1_epi8(12)));
  }
};

}  // namespace

bool joins_planes_avx2(tensor::DType dtype) noexcept { return dtype == tensor::DType::Q8_0; }

GemvKernel gemv_a32_avx2(tensor::DType dtype) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_0: return &gemv_any<FormatA32<Dots<UnpackQ4_0>>>;
    case DType::Q4_1: return &gemv_any<FormatA32<Dots<UnpackQ4_1>>>;
    case DType::Q5_0: return &gemv_any<FormatA32<Dots<UnpackQ5_0>>>;
    case DType::Q5_1: return &gemv_any<FormatA32<Dots<UnpackQ5_1>>>;
    case DType::Q8_0: return &gemv_any<FormatA32<WordDots<UnpackQ8_0>>>;
    case DType::IQ4_NL: return &gemv_any<FormatA32<Dots<UnpackIQ4_NL>>>;
    case DType::MXFP4: return &gemv_any<FormatA32<Dots<UnpackMXFP4>>>;
    default: return nullptr;
  }
}

}  // namespace assay::backend::cpu
