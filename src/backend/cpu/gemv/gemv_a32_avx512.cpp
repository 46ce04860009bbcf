// Matrix-vector products of the formats with blocks of 32 by AVX-512 VNNI: unsigned weights (an offset added) times
// signed activations.
#include "backend/cpu/gemm/block_heads.h"
#include "backend/cpu/gemv/gemv.h"
#include "backend/cpu/gemv/gemv_a32.h"
#include "backend/cpu/gemv/quads_avx512.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

// 16 bytes at p[i] + offset of four blocks, in the order of places: lanes i, i + 4, i + 1, i + 5.
inline __m512i load_quad(const std::byte* const* p, int offset) noexcept {
  const auto at = [&](int lane) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p[lane] + offset)); };
  __m512i v = _mm512_castsi128_si512(at(0));
  v = _mm512_inserti32x4(v, at(4), 1);
  v = _mm512_inserti32x4(v, at(1), 2);
  return _mm512_inserti32x4(v, at(5), 3);
}

// Block: of quant/, which says where everything lies.
template <class Block>
inline Quad nibbles(const std::byte* const* p) noexcept {
  return split_nibbles(load_quad(p, offsetof(Block, nibbles)));
}

// Adds 16 where the mask of 32 bits at kAtBits has the element's bit.
template <class Block>
inline Quad fifth_bits(Quad quad, const std::byte* const* p) noexcept {
  constexpr int kAtBits = offsetof(Block, high_bits);
  const __m512i heads = load_quad(p, 0);
  const __m512i bit = _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201u));
  const __m512i spread = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0101010101010101, 0));
  const __m512i first =
      _mm512_shuffle_epi8(heads, _mm512_add_epi8(spread, _mm512_set1_epi8(static_cast<char>(kAtBits))));
  const __m512i second =
      _mm512_shuffle_epi8(heads, _mm512_add_epi8(spread, _mm512_set1_epi8(static_cast<char>(kAtBits + 2))));
  const __m512i sixteen = _mm512_set1_epi8(16);
  return {_mm512_mask_add_epi8(quad.first, _mm512_test_epi8_mask(first, bit), quad.first, sixteen),
          _mm512_mask_add_epi8(quad.second, _mm512_test_epi8_mask(second, bit), quad.second, sixteen)};
}

// Sums of the 4 dwords of each block: places of `a` are lanes 0 4 1 5, of `b` lanes 2 6 3 7.
inline __m256i reduce(__m512i a, __m512i b) noexcept {
  const __m512i halves = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i sums = _mm512_add_epi32(halves, _mm512_shuffle_epi32(halves, _MM_PERM_BADC));
  const __m512i order = _mm512_castsi256_si512(_mm256_setr_epi32(0, 8, 1, 9, 4, 12, 5, 13));
  return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sums));
}

template <class Unpack>
struct Dots : Unpack {
  template <int kPlanes, int kTokens>
  [[gnu::always_inline]] static void dots(const std::byte* const* p, const int8_t* q, __m256i* out) noexcept {
    const Quad a = Unpack::quad(p), b = Unpack::quad(p + 2);
    for (int t = 0; t < kTokens; ++t, q += 256 * kPlanes) {
      __m512i sum_a = add_dot(_mm512_setzero_si512(), a, q), sum_b = add_dot(_mm512_setzero_si512(), b, q + 128);
      if constexpr (kPlanes == 2) {
        sum_a = add_dot(_mm512_slli_epi32(sum_a, 7), a, q + 256);
        sum_b = add_dot(_mm512_slli_epi32(sum_b, 7), b, q + 384);
      }
      out[t] = reduce(sum_a, sum_b);
    }
  }
};

// Both numbers of 8 heads converted side by side: half as many instructions as first apart.
struct ScaleAndMinTogether {
  static constexpr bool kHasMin = true;
  static Scales scales(const std::byte* const* p) noexcept {
    const Heads heads = load_heads(p);
    const __m512 both = _mm512_cvtph_ps(_mm256_set_m128i(heads.lanes4, heads.lanes0));
    const __m512i even = _mm512_castsi256_si512(_mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m512i odd = _mm512_castsi256_si512(_mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15));
    return {_mm512_castps512_ps256(_mm512_permutexvar_ps(even, both)),
            _mm512_castps512_ps256(_mm512_permutexvar_ps(odd, both))};
  }
};

struct UnpackQ4_0 : OneScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ4_0), kOffset = 8;
  static Quad quad(const std::byte* const* p) noexcept { return nibbles<quant::BlockQ4_0>(p); }
};

struct UnpackQ4_1 : ScaleAndMinTogether {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ4_1), kOffset = 0;
  static Quad quad(const std::byte* const* p) noexcept { return nibbles<quant::BlockQ4_1>(p); }
};

struct UnpackQ5_0 : OneScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ5_0), kOffset = 16;
  static Quad quad(const std::byte* const* p) noexcept {
    return fifth_bits<quant::BlockQ5_0>(nibbles<quant::BlockQ5_0>(p), p);
  }
};

struct UnpackQ5_1 : ScaleAndMinTogether {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ5_1), kOffset = 0;
  static Quad quad(const std::byte* const* p) noexcept {
    return fifth_bits<quant::BlockQ5_1>(nibbles<quant::BlockQ5_1>(p), p);
  }
};

struct UnpackQ8_0 : OneScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ8_0), kOffset = 128;
  static Quad quad(const std::byte* const* p) noexcept {
    const __m512i sign = _mm512_set1_epi8(-128);
    constexpr int kAt = offsetof(quant::BlockQ8_0, q);
    return {_mm512_xor_si512(load_quad(p, kAt), sign), _mm512_xor_si512(load_quad(p, kAt + 16), sign)};
  }
};

struct UnpackIQ4_NL : OneScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockIQ4_NL), kOffset = 128;
  static Quad quad(const std::byte* const* p) noexcept {
    return look_up(nibbles<quant::BlockIQ4_NL>(p), levels_iq4_nl());
  }
};

struct UnpackMXFP4 : PowerScale {
  static constexpr int kBlockBytes = sizeof(quant::BlockMXFP4), kOffset = kOffsetMxfp4;
  static Quad quad(const std::byte* const* p) noexcept {
    return look_up(nibbles<quant::BlockMXFP4>(p), levels_mxfp4());
  }
};

}  // namespace

GemvKernel gemv_a32_avx512(tensor::DType dtype) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_0: return &gemv_any<FormatA32<Dots<UnpackQ4_0>>>;
    case DType::Q4_1: return &gemv_any<FormatA32<Dots<UnpackQ4_1>>>;
    case DType::Q5_0: return &gemv_any<FormatA32<Dots<UnpackQ5_0>>>;
    case DType::Q5_1: return &gemv_any<FormatA32<Dots<UnpackQ5_1>>>;
    case DType::Q8_0: return &gemv_any<FormatA32<Dots<UnpackQ8_0>>>;
    case DType::IQ4_NL: return &gemv_any<FormatA32<Dots<UnpackIQ4_NL>>>;
    case DType::MXFP4: return &gemv_any<FormatA32<Dots<UnpackMXFP4>>>;
    default: return nullptr;
  }
}

}  // namespace assay::backend::cpu
