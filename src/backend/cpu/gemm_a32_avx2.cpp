// Matrix-matrix products of the formats with blocks of 32 by AVX2, as words. Two planes are one integer of 15 bits here: 128 * I_q + I_l is exact, and
// so are float(I_q) and float(I_l) of the contract, hence F = float(128 * I_q + I_l) / 128.
#include "backend/cpu/few_avx2.h"
#include "backend/cpu/gemm_avx2.h"
#include "backend/cpu/panel_a32.h"

namespace assay::backend::cpu {
namespace {

static_assert(int64_t{32} * 128 * (128 * 127 + 64) < (int64_t{1} << 31) && 32 * 128 * 127 < 1 << 24);

constexpr int kTileTokens = 6;  // all 12 sums in registers; the chains, read once a block, are in memory

template <class Format, int kPlanes, int kTokensOfTile = kTileTokens>
struct Words {
  static constexpr int kTokens = kTokensOfTile;
  // A block in the panel: 16 pairs of words of every row, d, m. Of the activations: [2 units of 8 pairs][token][pair], G of the contract, d.
  static constexpr int64_t kBlock = 32, kBlocksNear = 16, kD = 16 * 64, kStripBytes = kD + (Format::kHasMin ? 2 : 1) * 64;
  static constexpr int64_t kG = 2 * kTokens * 32, kLaidD = kG + 32, kTileBytes = kLaidD + 32;

  static void build(const LinearTask&, const std::byte** p, std::byte* out) noexcept {
    __m256i words[2][kRows];
    alignas(32) std::byte heads[kRows * 4];
    for (int64_t i = 0; i < kRows; ++i) {
      // Bytes around the offset, which may be 128: the difference is right modulo 256.
      const __m256i w = _mm256_sub_epi8(Format::weights(p[i]), _mm256_set1_epi8(static_cast<char>(Format::kOffset)));
      words[0][i] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(w));
      words[1][i] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(w, 1));
      __builtin_memcpy(heads + 4 * i, p[i], 4);
      p[i] += Format::kBlockBytes;
    }
    store_columns(words[0], out);
    store_columns(words[1], out + 8 * 64);
    // The 1/128 of F: a power of two, and d stays representable with it.
    const __m256 unit = _mm256_set1_ps(kPlanes == 2 ? 0x1p-7f : 1.0f);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD), _mm256_mul_ps(Format::d(heads, 4), unit));
    if constexpr (Format::kHasMin) _mm256_store_ps(reinterpret_cast<float*>(out + kD + 64), Format::m(heads, 4));
  }

  static void lay(const LinearTask& task, const int64_t* rows, int64_t b, std::byte* out) noexcept {
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = rows[t] * task.k + 32 * b, block = rows[t] * (task.k / 32) + b;
      for (int unit = 0; unit < 2; ++unit) {
        __m256i x = widen(task.x.q + at + 16 * unit);
        if constexpr (kPlanes == 2) x = _mm256_add_epi16(_mm256_slli_epi16(x, 7), widen(task.x.l + at + 16 * unit));
        store_256(x, out + 32 * (kTokens * unit + t));
      }
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

struct KernelOf {
  template <class Format>
  GemmKernel of() const noexcept {
    return gemm_kernel<Words<Format, 1>, Words<Format, 2>>();
  }
};

template <class Format, int kPlanes>
GemmKernel few() noexcept {
  return few_of_tiles<Words, Format, kPlanes, kTileTokens>();
}

}  // namespace

GemmKernel few_a32_avx2(tensor::DType dtype, int planes) noexcept {
  using tensor::DType;
  if (planes == 1) return dtype == DType::Q8_0 ? few<RowsQ8_0, 1>() : GemmKernel{};
  switch (dtype) {
    case DType::Q4_0: return few<RowsQ4_0, 2>();
    case DType::Q4_1: return few<RowsQ4_1, 2>();
    case DType::Q8_0: return few<RowsQ8_0, 2>();
    default: return {};
  }
}

GemmKernel gemm_a32_avx2(tensor::DType dtype) noexcept { return with_rows_a32(dtype, KernelOf{}); }

}  // namespace assay::backend::cpu
