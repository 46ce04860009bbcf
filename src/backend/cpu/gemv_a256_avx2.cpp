// Matrix-vector products of the formats with superblocks of 256 by AVX2: bytes are multiplied in pairs (vpmaddubsw), the pairs with their group's
// scale (vpmaddwd). vpmaddubsw saturates: unsigned weights are at most 63, signed ones move their sign to the activation.
#include "backend/cpu/gemv.h"
#include "backend/cpu/gemv_a256.h"

namespace assay::backend::cpu {
namespace {

static_assert(2 * 63 * 127 <= 32767 && 2 * 127 * 127 <= 32767);

inline __m256i load_256(const void* p) noexcept { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Bits of the bytes as 0 or `value`, 32 elements for each bit number.
inline __m256i where_bit(__m256i bytes, int bit, int value) noexcept {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(1 << bit));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, mask), mask), _mm256_set1_epi8(static_cast<char>(value)));
}

struct PartialSums {
  __m256i dot;
  __m256i minimum;  // only where the format has one
};

// Unpack gives the 128 elements of a half as w[4], 32 each in order: unsigned with what SubScales says of the offset, or signed.
template <class Unpack>
struct Dots : Unpack {
  using Partial = PartialSums;

  template <int kColumns>
  static void dots(const LinearTask& task, const std::byte* p, const int8_t* const* q, const int16_t* const* sums,
                   PartialSums* out) noexcept {
    const typename Unpack::Block block = Unpack::open(task, p);
    const SubScales s = Unpack::sub_scales(block);
    __m256i dot[kColumns];
    for (int column = 0; column < kColumns; ++column) dot[column] = _mm256_setzero_si256();
    for (int half = 0; half < 2; ++half) {
      __m256i w[4];
      Unpack::unpack(block, half, w);
      const __m256i words = half == 0 ? _mm256_permute2x128_si256(s.scale, s.scale, 0x00) : _mm256_permute2x128_si256(s.scale, s.scale, 0x11);
      for (int i = 0; i < 4; ++i) {
        const int16_t first = static_cast<int16_t>(0x0100 + 0x0404 * i), second = static_cast<int16_t>(0x0302 + 0x0404 * i);
        const __m256i scale = _mm256_shuffle_epi8(words, _mm256_set_m128i(_mm_set1_epi16(second), _mm_set1_epi16(first)));
        for (int column = 0; column < kColumns; ++column) {
          const __m256i x = load_256(q[column] + 128 * half + 32 * i);
          const __m256i pairs = Unpack::kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), _mm256_sign_epi8(x, w[i]))
                                                : _mm256_maddubs_epi16(w[i], x);
          dot[column] = _mm256_add_epi32(dot[column], _mm256_madd_epi16(pairs, scale));
        }
      }
    }
    for (int column = 0; column < kColumns; ++column) {
      out[column].dot = dot[column];
      if constexpr (Unpack::kHasMin) {
        out[column].minimum = _mm256_madd_epi16(s.min, load_256(sums[column]));
      } else if constexpr (!Unpack::kSigned) {
        out[column].dot = _mm256_add_epi32(dot[column], _mm256_madd_epi16(s.min, load_256(sums[column])));
      }
    }
  }

  static void reduce(const PartialSums* partial, __m256i& dot, __m256i& minimum) noexcept {
    __m256i dots[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) dots[lane] = partial[lane].dot;
    dot = add_across(dots);
    if constexpr (Unpack::kHasMin) {
      __m256i minima[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) minima[lane] = partial[lane].minimum;
      minimum = add_across(minima);
    }
  }
};

// A superblock is read where it lies.
struct InPlace {
  static constexpr bool kSigned = false;
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

struct UnpackQ2_K : ScaleAndMin<84, 80, 82>, InPlace {
  static SubScales sub_scales(Block p) noexcept { return q2_k_scales(p); }
  static void unpack(Block p, int half, __m256i* w) noexcept { unpack_pairs(p + 16 + 32 * half, w); }
};

struct UnpackQ3_K : OneScale<110, 108>, InPlace {
  static SubScales sub_scales(Block p) noexcept { return q3_k_scales(p + 96); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    unpack_pairs(p + 32 + 32 * half, w);
    const __m256i high = load_256(p);
    for (int i = 0; i < 4; ++i) w[i] = _mm256_or_si256(w[i], where_bit(high, 4 * half + i, 4));
  }
};

struct UnpackQ4_K : ScaleAndMin<144, 0, 2>, InPlace {
  static SubScales sub_scales(Block p) noexcept { return k_scales(p + 4); }
  static void unpack(Block p, int half, __m256i* w) noexcept { unpack_nibbles(p + 16 + 64 * half, w); }
};

struct UnpackQ5_K : ScaleAndMin<176, 0, 2>, InPlace {
  static SubScales sub_scales(Block p) noexcept { return k_scales(p + 4); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    unpack_nibbles(p + 48 + 64 * half, w);
    const __m256i high = load_256(p + 16);
    for (int i = 0; i < 4; ++i) w[i] = _mm256_or_si256(w[i], where_bit(high, 4 * half + i, 16));
  }
};

struct UnpackQ6_K : OneScale<210, 208>, InPlace {
  static SubScales sub_scales(Block p) noexcept { return q6_k_scales(p + 192); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8(0x30);
    const __m256i first = load_256(p + 64 * half), second = load_256(p + 64 * half + 32), pairs = load_256(p + 128 + 32 * half);
    w[0] = _mm256_or_si256(_mm256_and_si256(first, low), _mm256_and_si256(_mm256_slli_epi16(pairs, 4), high));
    w[1] = _mm256_or_si256(_mm256_and_si256(second, low), _mm256_and_si256(_mm256_slli_epi16(pairs, 2), high));
    w[2] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(first, 4), low), _mm256_and_si256(pairs, high));
    w[3] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(second, 4), low), _mm256_and_si256(_mm256_srli_epi16(pairs, 2), high));
  }
};

struct UnpackIQ4_XS : OneScale<136, 0>, InPlace {
  static constexpr bool kSigned = true;
  static SubScales sub_scales(Block p) noexcept { return iq4_xs_scales(p + 2); }
  static void unpack(Block p, int half, __m256i* w) noexcept {
    const __m128i levels = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    const __m128i mask = _mm_set1_epi8(15);
    for (int i = 0; i < 4; ++i) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 + 64 * half + 16 * i));
      w[i] = _mm256_set_m128i(_mm_shuffle_epi8(levels, _mm_and_si128(_mm_srli_epi16(bytes, 4), mask)),
                              _mm_shuffle_epi8(levels, _mm_and_si128(bytes, mask)));
    }
  }
};

struct UnpackAny : AnyScale {
  static constexpr bool kSigned = true;
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

}  // namespace

GemvKernel gemv_a256_avx2(tensor::DType dtype) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q2_K: return &gemv_any<FormatA256<Dots<UnpackQ2_K>>>;
    case DType::Q3_K: return &gemv_any<FormatA256<Dots<UnpackQ3_K>>>;
    case DType::Q4_K: return &gemv_any<FormatA256<Dots<UnpackQ4_K>>>;
    case DType::Q5_K: return &gemv_any<FormatA256<Dots<UnpackQ5_K>>>;
    case DType::Q6_K: return &gemv_any<FormatA256<Dots<UnpackQ6_K>>>;
    case DType::IQ4_XS: return &gemv_any<FormatA256<Dots<UnpackIQ4_XS>>>;
    case DType::IQ1_S:
    case DType::IQ2_XXS:
    case DType::IQ2_XS:
    case DType::IQ2_S:
    case DType::IQ3_XXS:
    case DType::IQ3_S:
    case DType::TQ1_0:
    case DType::TQ2_0: return &gemv_any<FormatA256<Dots<UnpackAny>>>;
    default: return nullptr;
  }
}

}  // namespace assay::backend::cpu
