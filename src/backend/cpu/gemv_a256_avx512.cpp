// Matrix-vector products of the formats with superblocks of 256 by AVX-512 VNNI: bytes are multiplied in pairs (vpmaddubsw), the pairs with their
// group's scale (vpdpwssd), so that one register gathers the whole superblock.
#include "backend/cpu/gemv.h"
#include "backend/cpu/gemv_a256.h"
#include "backend/cpu/superblock_scales.h"

namespace assay::backend::cpu {
namespace {

inline __m512i load_512(const void* p) noexcept { return _mm512_loadu_si512(p); }
inline __m256i load_256(const void* p) noexcept { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// The same 32 bytes in both halves.
inline __m512i load_twice(const std::byte* p) noexcept { return _mm512_broadcast_i64x4(load_256(p)); }

// 16-bit shift counts: `first` in the lower half of the register, `second` in the upper.
inline __m512i halves(int first, int second) noexcept {
  return _mm512_inserti64x4(_mm512_set1_epi16(static_cast<int16_t>(first)), _mm256_set1_epi16(static_cast<int16_t>(second)), 1);
}

// Bit `first` of the bytes in the lower half, bit `first + 1` in the upper.
inline __mmask64 bits(__m512i bytes, int first) noexcept {
  return _mm512_test_epi8_mask(bytes, halves(0x0101 << first, 0x0202 << first));
}

struct PartialSums {
  __m512i dot;
  __m256i minimum;  // only where the format has one
};

// Sums over the 16 dwords of 8 registers, in order.
inline __m256i add_across(const __m512i* v) noexcept {
  const auto fold_2 = [](__m512i a, __m512i b) { return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)); };
  const auto fold_4 = [](__m512i a, __m512i b) { return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)); };
  const __m512i lanes0 = fold_4(fold_2(v[0], v[1]), fold_2(v[2], v[3]));  // in each 128 bits a part of the sums 0 1 2 3
  const __m512i lanes4 = fold_4(fold_2(v[4], v[5]), fold_2(v[6], v[7]));
  const __m512i sum = _mm512_add_epi32(_mm512_shuffle_i32x4(lanes0, lanes4, 0x44), _mm512_shuffle_i32x4(lanes0, lanes4, 0xEE));
  const __m512i swapped = _mm512_shuffle_i32x4(sum, sum, 0xB1);
  const __m512i total = _mm512_add_epi32(sum, swapped);  // 128-bit parts: lanes0 lanes0 lanes4 lanes4
  return _mm512_castsi512_si256(_mm512_shuffle_i32x4(total, total, 0x08));
}

// Unpack gives w[4], 64 elements each in order: unsigned with what SubScales says of the offset, or signed.
template <class Unpack>
struct Dots : Unpack {
  using Partial = PartialSums;

  template <int kColumns>
  static void dots(const LinearTask& task, const std::byte* p, const int8_t* const* q, const int16_t* const* sums,
                   PartialSums* out) noexcept {
    __m512i w[4];
    const SubScales s = Unpack::unpack(task, p, w);
    const __m512i words = _mm512_castsi256_si512(s.scale);
    const __m512i group = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(_mm_set1_epi16(1), _mm_set1_epi16(0))),
                                             _mm256_set_m128i(_mm_set1_epi16(3), _mm_set1_epi16(2)), 1);
    __m512i scale[4];
    for (int i = 0; i < 4; ++i) {
      scale[i] = _mm512_permutexvar_epi16(_mm512_add_epi16(group, _mm512_set1_epi16(static_cast<int16_t>(4 * i))), words);
    }
    for (int column = 0; column < kColumns; ++column) {
      __m512i dot = _mm512_setzero_si512();
      for (int i = 0; i < 4; ++i) {
        const __m512i x = load_512(q[column] + 64 * i);
        __m512i pairs;
        if constexpr (Unpack::kSigned) {
          const __m512i moved = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w[i]), _mm512_setzero_si512(), x);
          pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w[i]), moved);
        } else {
          pairs = _mm512_maddubs_epi16(w[i], x);
        }
        dot = _mm512_dpwssd_epi32(dot, pairs, scale[i]);
      }
      if constexpr (Unpack::kHasMin) {
        out[column].minimum = _mm256_madd_epi16(s.min, load_256(sums[column]));
      } else if constexpr (!Unpack::kSigned) {
        dot = _mm512_add_epi32(dot, _mm512_zextsi256_si512(_mm256_madd_epi16(s.min, load_256(sums[column]))));
      }
      out[column].dot = dot;
    }
  }

  static void reduce(const PartialSums* partial, __m256i& dot, __m256i& minimum) noexcept {
    __m512i dots[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) dots[lane] = partial[lane].dot;
    dot = add_across(dots);
    if constexpr (Unpack::kHasMin) {
      __m256i minima[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) minima[lane] = partial[lane].minimum;
      minimum = add_across(minima);
    }
  }
};

struct UnpackQ2_K : ScaleAndMin<84, 80, 82> {
  static constexpr bool kSigned = false;
  static SubScales unpack(const LinearTask&, const std::byte* p, __m512i* w) noexcept {
    const __m512i mask = _mm512_set1_epi8(3);
    for (int half = 0; half < 2; ++half) {
      const __m512i bytes = load_twice(p + 16 + 32 * half);
      w[2 * half] = _mm512_and_si512(_mm512_srlv_epi16(bytes, halves(0, 2)), mask);
      w[2 * half + 1] = _mm512_and_si512(_mm512_srlv_epi16(bytes, halves(4, 6)), mask);
    }
    return q2_k_scales(p);
  }
};

struct UnpackQ3_K : OneScale<110, 108> {
  static constexpr bool kSigned = false;
  static SubScales unpack(const LinearTask&, const std::byte* p, __m512i* w) noexcept {
    const __m512i mask = _mm512_set1_epi8(3), four = _mm512_set1_epi8(4);
    const __m512i high = load_twice(p);
    for (int half = 0; half < 2; ++half) {
      const __m512i bytes = load_twice(p + 32 + 32 * half);
      w[2 * half] = _mm512_and_si512(_mm512_srlv_epi16(bytes, halves(0, 2)), mask);
      w[2 * half + 1] = _mm512_and_si512(_mm512_srlv_epi16(bytes, halves(4, 6)), mask);
    }
    for (int i = 0; i < 4; ++i) w[i] = _mm512_mask_add_epi8(w[i], bits(high, 2 * i), w[i], four);
    return q3_k_scales(p + 96);
  }
};

inline void unpack_nibbles(const std::byte* p, __m512i* w) noexcept {
  for (int i = 0; i < 4; ++i) {
    w[i] = _mm512_and_si512(_mm512_srlv_epi16(load_twice(p + 32 * i), halves(0, 4)), _mm512_set1_epi8(15));
  }
}

struct UnpackQ4_K : ScaleAndMin<144, 0, 2> {
  static constexpr bool kSigned = false;
  static SubScales unpack(const LinearTask&, const std::byte* p, __m512i* w) noexcept {
    unpack_nibbles(p + 16, w);
    return k_scales(p + 4);
  }
};

struct UnpackQ5_K : ScaleAndMin<176, 0, 2> {
  static constexpr bool kSigned = false;
  static SubScales unpack(const LinearTask&, const std::byte* p, __m512i* w) noexcept {
    unpack_nibbles(p + 48, w);
    const __m512i high = load_twice(p + 16);
    for (int i = 0; i < 4; ++i) w[i] = _mm512_mask_add_epi8(w[i], bits(high, 2 * i), w[i], _mm512_set1_epi8(16));
    return k_scales(p + 4);
  }
};

struct UnpackQ6_K : OneScale<210, 208> {
  static constexpr bool kSigned = false;
  static SubScales unpack(const LinearTask&, const std::byte* p, __m512i* w) noexcept {
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8(0x30);
    for (int half = 0; half < 2; ++half) {
      const __m512i nibbles = load_512(p + 64 * half), pairs = load_twice(p + 128 + 32 * half);
      w[2 * half] = _mm512_or_si512(_mm512_and_si512(nibbles, low), _mm512_and_si512(_mm512_sllv_epi16(pairs, halves(4, 2)), high));
      w[2 * half + 1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(nibbles, 4), low),
                                        _mm512_and_si512(_mm512_srlv_epi16(pairs, halves(0, 2)), high));
    }
    return q6_k_scales(p + 192);
  }
};

struct UnpackIQ4_XS : OneScale<136, 0> {
  static constexpr bool kSigned = true;
  static SubScales unpack(const LinearTask&, const std::byte* p, __m512i* w) noexcept {
    const __m512i levels =
        _mm512_broadcast_i32x4(_mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
    const __m512i counts = _mm512_broadcast_i64x4(_mm256_set_m128i(_mm_set1_epi16(4), _mm_set1_epi16(0)));
    for (int i = 0; i < 4; ++i) {
      const __m512i bytes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), _mm512_castsi256_si512(load_256(p + 8 + 32 * i)));
      w[i] = _mm512_shuffle_epi8(levels, _mm512_and_si512(_mm512_srlv_epi16(bytes, counts), _mm512_set1_epi8(15)));
    }
    return iq4_xs_scales(p + 2);
  }
};

struct UnpackAny : AnyScale {
  static constexpr bool kSigned = true;
  static SubScales unpack(const LinearTask& task, const std::byte* p, __m512i* w) noexcept {
    quant::Integers256 integers;
    task.format->integers(p, integers);
    for (int i = 0; i < 4; ++i) w[i] = load_512(integers.w + 64 * i);
    return {load_256(integers.scale), _mm256_setzero_si256()};
  }
};

}  // namespace

GemvKernel gemv_a256_avx512(tensor::DType dtype) noexcept {
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
