// Matrix-matrix products of the formats with blocks of 32 by AVX2, as words. Two planes are one integer of 15 bits
// here: 128 * I_q + I_l is exact, and so are float(I_q) and float(I_l) of the contract, hence F = float(128 * I_q +
// I_l) / 128.
#include "backend/cpu/gemm/block_columns_avx2.h"
#include "backend/cpu/gemm/gemm_avx2.h"
#include "backend/cpu/gemm/skinny_avx2.h"

namespace assay::backend::cpu {
namespace {

static_assert(int64_t{32} * 128 * (128 * 127 + 64) < (int64_t{1} << 31) && 32 * 128 * 127 < 1 << 24);

constexpr int kTileTokens = 6;  // all 12 sums in registers; the chains, read once a block, are in memory

template <class Format, int kPlanes, int kTokensOfTile = kTileTokens>
struct Words {
  static constexpr int kTokens = kTokensOfTile;
  // A block in the panel: of every row 8 pairs of elements 4r and 4r + 2, then 8 of elements 4r + 1 and 4r + 3, as
  // words; d, m. Of the activations: [2 units of 8 pairs][token][pair], G of the contract, d.
  static constexpr int64_t kBlock = 32, kBlocksNear = 16, kD = 16 * 64,
                           kStripBytes = kD + (Format::kHasMin ? 2 : 1) * 64;
  static constexpr int64_t kG = 2 * kTokens * 32, kLaidD = kG + 32, kTileBytes = kLaidD + 32;

  static void build(const LinearTask&, const std::byte** p, std::byte* out) noexcept {
    using Columns = BlockColumns<Format>;
    __m256i columns[8];
    Columns::weights(p, columns);
    const __m256i offset = _mm256_set1_epi16(Format::kOffset), low = _mm256_set1_epi16(0xFF);
    for (int i = 0; i < 8; ++i) {
      WordPairs words;
      if constexpr (Columns::kSigned) {
        words = signed_words(columns[i]);
      } else {
        words = {_mm256_sub_epi16(_mm256_and_si256(columns[i], low), offset),
                 _mm256_sub_epi16(_mm256_srli_epi16(columns[i], 8), offset)};
      }
      store_256(words.even, out + 64 * i);
      store_256(words.odd, out + 64 * (8 + i));
    }
    const Scales scales = Columns::scales(p);
    // The 1/128 of F: a power of two, and d stays representable with it.
    const __m256 unit = _mm256_set1_ps(kPlanes == 2 ? 0x1p-7f : 1.0f);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD), _mm256_mul_ps(scales.d, unit));
    if constexpr (Format::kHasMin) _mm256_store_ps(reinterpret_cast<float*>(out + kD + 64), scales.m);
    for (int64_t i = 0; i < kRows; ++i) p[i] += Format::kBlockBytes;
  }

  static void lay(const LinearTask& task, const int64_t* rows, int64_t b, std::byte* out) noexcept {
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = rows[t] * task.k + 32 * b, block = rows[t] * (task.k / 32) + b;
      const auto elements = [at](const int8_t* plane) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(plane + at));
      };
      const WordPairs words =
          kPlanes == 2 ? joined_words(elements(task.x.q), elements(task.x.l)) : signed_words(elements(task.x.q));
      store_256(words.even, out + 32 * t);
      store_256(words.odd, out + 32 * (kTokens + t));
      int sum = task.x.q_sums[block];
      if (kPlanes == 2) sum = 128 * sum + task.x.l_sums[block];  // exact, as the sums of the weights are
      reinterpret_cast<float*>(out + kG)[t] = static_cast<float>(sum) * (kPlanes == 2 ? 0x1p-7f : 1.0f);
      reinterpret_cast<float*>(out + kLaidD)[t] = task.x.d[block];
    }
  }

  static void run(const std::byte* w, const std::byte* x, int64_t n, __m256 (&c)[kTokens][kGroups]) noexcept {
    for (int64_t i = 0; i < n; ++i, w += kStripBytes, x += kTileBytes) {
      __m256i sum[kTokens][kGroups];
      for (int t = 0; t < kTokens; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
      sums_of_words<2, kTokens>(w, x, sum);
      add_terms<Format::kHasMin>(sum, w + kD, floats(x + kG), floats(x + kLaidD), c);
    }
  }
};

template <class Format, int kPlanes>
GemmKernel panels() noexcept {
  using Kernel = Words<Format, kPlanes>;
  return {&gemm<Kernel>, &gemm_scratch_bytes<Kernel>, kGemmRowStep};
}

struct PanelsOf {
  template <class Format>
  GemmKernel of() const noexcept {
    return planes == 2 ? panels<Format, 2>() : panels<Format, 1>();
  }
  int planes;
};

struct FewOf {
  template <class Format>
  GemmKernel of() const noexcept {
    return planes == 2 ? skinny_of_tiles<Words, Format, 2, kTileTokens>()
                       : skinny_of_tiles<Words, Format, 1, kTileTokens>();
  }
  int planes;
};

}  // namespace

GemmKernel gemm_a32_avx2(tensor::DType dtype, int planes) noexcept { return with_rows_a32(dtype, PanelsOf{planes}); }
GemmKernel skinny_a32_avx2(tensor::DType dtype, int planes) noexcept { return with_rows_a32(dtype, FewOf{planes}); }

}  // namespace assay::backend::cpu
