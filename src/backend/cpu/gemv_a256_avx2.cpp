// Matrix-vector products of the formats with superblocks of 256 by AVX2: bytes are multiplied in pairs (vpmaddubsw), the pairs with their group's
// scale (vpmaddwd). vpmaddubsw saturates: unsigned weights are at most 63, signed ones move their sign to the activation.
#include "backend/cpu/gemv.h"
#include "backend/cpu/gemv_a256.h"
#include "backend/cpu/unpack_a256.h"

namespace assay::backend::cpu {
namespace {

static_assert(2 * 63 * 127 <= 32767 && 2 * 127 * 127 <= 32767);

struct PartialSums {
  __m256i dot;
  __m256i minimum;  // only where the format has one
};

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
