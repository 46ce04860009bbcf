// Matrix-matrix products of the formats with superblocks of 256 and activations of one plane by AVX2 whose weights are
// signed: the integer scales are multiplied into the weights once (13 bits), so that a superblock is one exact integer
// sum. These formats have no minimum.
#include "backend/cpu/gemm/gemm_avx2.h"
#include "backend/cpu/gemv/unpack_a256.h"

namespace assay::backend::cpu {
namespace {

static_assert(int64_t{256} * 127 * 4096 < (int64_t{1} << 31));

template <class Format>
struct Words {
  static_assert(!Format::kHasMin && Format::kOffset == 0 && Format::kWeightMax * Format::kScaleMax <= 4096);
  static constexpr int kTokens = 3;
  // A superblock in the panel: 128 pairs of words of every row, d. Of the activations: [16 units of 8
  // pairs][token][pair], d.
  static constexpr int64_t kBlock = 256, kBlocksNear = 1, kD = 128 * 64, kStripBytes = kD + 64;
  static constexpr int64_t kLaidD = 16 * kTokens * 32, kTileBytes = kLaidD + 32;

  // The 256 weights of one superblock times their integer scales.
  static void scaled_words(const LinearTask& task, const std::byte* p, __m256i* words) noexcept {
    const auto block = Format::open(task, p);
    alignas(32) int16_t scale[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(scale), Format::sub_scales(block).scale);
    for (int half = 0; half < 2; ++half) {
      __m256i w[4];
      Format::unpack(block, half, w);
      for (int j = 0; j < 4; ++j) {
        const int at = 8 * half + 2 * j;
        words[at] =
            _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(w[j])), _mm256_set1_epi16(scale[at]));
        words[at + 1] = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(w[j], 1)),
                                           _mm256_set1_epi16(scale[at + 1]));
      }
    }
  }

  static void build(const LinearTask& task, const std::byte** p, std::byte* out) noexcept {
    __m256i words[16][kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      __m256i of_row[16];
      scaled_words(task, p[i], of_row);
      for (int j = 0; j < 16; ++j) words[j][i] = of_row[j];
    }
    for (int j = 0; j < 16; ++j) store_columns(words[j], out + 8 * 64 * j);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD), Format::scales(task, p).d);
    for (int64_t i = 0; i < kRows; ++i) p[i] += Format::block_bytes(task);
  }

  static void lay(const LinearTask& task, const int64_t* rows, int64_t b, std::byte* out) noexcept {
    for (int t = 0; t < kTokens; ++t) {
      const int8_t* q = task.x.q + rows[t] * task.k + 256 * b;
      for (int unit = 0; unit < 16; ++unit) store_256(widen(q + 16 * unit), out + 32 * (kTokens * unit + t));
      reinterpret_cast<float*>(out + kLaidD)[t] = task.x.d[rows[t] * (task.k / 256) + b];
    }
  }

  static void run(const std::byte* w, const std::byte* x, int64_t n, __m256 (&c)[kTokens][kGroups]) noexcept {
    for (int64_t i = 0; i < n; ++i, w += kStripBytes, x += kTileBytes) {
      __m256i sum[kTokens][kGroups];
      for (int t = 0; t < kTokens; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
      sums_of_words<16, kTokens>(w, x, sum);
      for (int t = 0; t < kTokens; ++t) {
        const __m256 d_of_token = _mm256_set1_ps(floats(x + kLaidD)[t]);
        for (int g = 0; g < kGroups; ++g) {
          const __m256 term = _mm256_mul_ps(_mm256_load_ps(floats(w + kD + 32 * g)), _mm256_cvtepi32_ps(sum[t][g]));
          c[t][g] = _mm256_fmadd_ps(d_of_token, term, c[t][g]);
        }
      }
    }
  }
};

struct KernelOf {
  template <class Format>
  GemmKernel of() const noexcept {
    if constexpr (Format::kSigned) {
      return {&gemm<Words<Format>>, &gemm_scratch_bytes<Words<Format>>, kGemmRowStep};
    } else {
      return {};  // gemm_a256_bytes_avx2.cpp
    }
  }
};

}  // namespace

GemmKernel gemm_a256_avx2(tensor::DType dtype) noexcept { return with_unpack_a256(dtype, KernelOf{}); }

}  // namespace assay::backend::cpu
