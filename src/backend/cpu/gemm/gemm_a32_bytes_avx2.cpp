// Matrix-matrix products of the formats with blocks of 32 and small unsigned weights by AVX2's byte multiplication, for
// activations of one plane. (Two planes are one word of 15 bits, which gemm_a32_avx2.cpp multiplies at no cost for the
// second.)
//   Where weights have an offset, a sum begins with minus the offset times its activations. Words wrap around, so only
// the sum without the offset has to fit.
//   Few tokens have weights of 8 bits here too (SignedBytes); for many their words are the faster.
#include "backend/cpu/gemm/block_columns_avx2.h"
#include "backend/cpu/gemm/gemm_avx2.h"
#include "backend/cpu/gemm/skinny_avx2.h"

namespace assay::backend::cpu {
namespace {

// The largest magnitude of a weight, without its offset.
template <class Format>
constexpr int kWeightMax = 16;
template <>
constexpr int kWeightMax<RowsQ4_1> = 15;
template <>
constexpr int kWeightMax<RowsQ5_1> = 31;

constexpr int kTileTokens = 3;

template <class Format, int kTokensOfTile = kTileTokens>
struct Bytes {
  static constexpr int kTokens = kTokensOfTile;
  // Dwords (4 elements: two pairs, each in a word of its own) that one sum of words takes.
  static constexpr int kPerSum = 8 * 2 * kWeightMax<Format> * 127 <= 32767 ? 8 : 4;
  static_assert(kPerSum * 2 * kWeightMax<Format> * 127 <= 32767);
  static_assert(Format::kOffset == 0 || kPerSum == 8);
  // A block in the panel: 8 dwords of every row, d, m. Of the activations: [token][32]; what a block's sum begins with,
  // a pair of words; G of the contract; d.
  static constexpr int64_t kBlock = 32, kBlocksNear = 16, kD = 8 * 64,
                           kStripBytes = kD + (Format::kHasMin ? 2 : 1) * 64;
  static constexpr int64_t kStart = kTokens * 32, kG = kStart + 16, kLaidD = kG + 16, kTileBytes = kLaidD + 32;

  static void build(const LinearTask&, const std::byte** p, std::byte* out) noexcept {
    __m256i columns[8];
    BlockColumns<Format>::weights(p, columns);
    for (int i = 0; i < 8; ++i) store_256(columns[i], out + 64 * i);
    const Scales scales = BlockColumns<Format>::scales(p);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD), scales.d);
    if constexpr (Format::kHasMin) _mm256_store_ps(reinterpret_cast<float*>(out + kD + 64), scales.m);
    for (int64_t i = 0; i < kRows; ++i) p[i] += Format::kBlockBytes;
  }

  static void lay(const LinearTask& task, const int64_t* rows, int64_t b, std::byte* out) noexcept {
    for (int t = 0; t < kTokens; ++t) {
      const int64_t block = rows[t] * (task.k / 32) + b;
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(task.x.q + rows[t] * task.k + 32 * b));
      store_256(x, out + 32 * t);
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(Format::kOffset), x);
      __m128i sum = _mm_add_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
      sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0x4E));
      sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xB1));
      _mm_storeu_si32(out + kStart + 4 * t, _mm_sub_epi16(_mm_setzero_si128(), sum));
      reinterpret_cast<float*>(out + kG)[t] = static_cast<float>(task.x.q_sums[block]);
      reinterpret_cast<float*>(out + kLaidD)[t] = task.x.d[block];
    }
  }

  // S of one block.
  static void block(const std::byte* w, const std::byte* x, __m256i (&sum)[kTokens][kGroups]) noexcept {
    __m256i words[kTokens][kGroups];
#pragma GCC unroll 8
    for (int p = 0; p < 8; ++p) {
      const __m256i a = load_256(w, 64 * p), b = load_256(w, 64 * p + 32);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        if (p % kPerSum != 0) {
          add_bytes(a, b, dwords(x + 32 * t) + p, words[t]);
        } else if constexpr (Format::kOffset != 0) {
          begin_bytes_at(a, b, dwords(x + 32 * t) + p, dwords(x + kStart) + t, words[t]);
        } else {
          begin_bytes(a, b, dwords(x + 32 * t) + p, words[t]);
        }
      }
      if (p % kPerSum != kPerSum - 1) continue;
      for (int t = 0; t < kTokens; ++t) {
        for (int g = 0; g < kGroups; ++g) {
          const __m256i wide = _mm256_madd_epi16(words[t][g], _mm256_set1_epi16(1));
          sum[t][g] = p < kPerSum ? wide : _mm256_add_epi32(sum[t][g], wide);
        }
      }
    }
  }

  static void run(const std::byte* w, const std::byte* x, int64_t n, __m256 (&chains)[kTokens][kGroups]) noexcept {
    __m256 c[kTokens][kGroups];
    for (int t = 0; t < kTokens; ++t) c[t][0] = chains[t][0], c[t][1] = chains[t][1];
    for (int64_t i = 0; i < n; ++i, w += kStripBytes, x += kTileBytes) {
      __m256i sum[kTokens][kGroups];
      block(w, x, sum);
      add_terms<Format::kHasMin>(sum, w + kD, floats(x + kG), floats(x + kLaidD), c);
    }
    for (int t = 0; t < kTokens; ++t) chains[t][0] = c[t][0], chains[t][1] = c[t][1];
  }
};

// sum += (a, b) * x, where the weights' signs are given to the activations.
inline void add_signed_bytes(const __m256i (&weights)[2], const __m256i (&magnitudes)[2], __m256i ones,
                             const int32_t* x, __m256i* sum) noexcept {
  __m256i v, product;
  asm("vpbroadcastd %[x], %[v]\n\t"
      "vpsignb %[a], %[v], %[product]\n\t"
      "vpsignb %[b], %[v], %[v]\n\t"
      "vpmaddubsw %[product], %[abs_a], %[product]\n\t"
      "vpmaddubsw %[v], %[abs_b], %[v]\n\t"
      "vpmaddwd %[ones], %[product], %[product]\n\t"
      "vpmaddwd %[ones], %[v], %[v]\n\t"
      "vpaddd %[product], %[sum0], %[sum0]\n\t"
      "vpaddd %[v], %[sum1], %[sum1]"
      : [sum0] "+x"(sum[0]), [sum1] "+x"(sum[1]), [v] "=&x"(v), [product] "=&x"(product)
      : [a] "x"(weights[0]), [b] "x"(weights[1]), [abs_a] "x"(magnitudes[0]), [abs_b] "x"(magnitudes[1]),
        [ones] "x"(ones), [x] "m"(*x));
}

// Weights of 8 bits: a magnitude of at most 128 is a byte without sign, and a pair of products fits a word; words are
// half as much to unpack again.
static_assert(2 * 128 * 127 <= 32767);
template <class Format, int, int kTokensOfTile>
struct SignedBytes {
  static_assert(BlockColumns<Format>::kSigned && !Format::kHasMin);
  static constexpr int kTokens = kTokensOfTile;
  // A block in the panel: 8 dwords of every row, d. Of the activations: [token][32], d.
  static constexpr int64_t kBlock = 32, kBlocksNear = 16, kD = 8 * 64, kStripBytes = kD + 64, kLaidD = kTokens * 32,
                           kTileBytes = kLaidD + 32;

  static void build(const LinearTask&, const std::byte** p, std::byte* out) noexcept {
    __m256i columns[8];
    BlockColumns<Format>::weights(p, columns);
    for (int i = 0; i < 8; ++i) store_256(columns[i], out + 64 * i);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD), BlockColumns<Format>::scales(p).d);
    for (int64_t i = 0; i < kRows; ++i) p[i] += Format::kBlockBytes;
  }

  static void lay(const LinearTask& task, const int64_t* rows, int64_t b, std::byte* out) noexcept {
    for (int t = 0; t < kTokens; ++t) {
      store_256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(task.x.q + rows[t] * task.k + 32 * b)),
                out + 32 * t);
      reinterpret_cast<float*>(out + kLaidD)[t] = task.x.d[rows[t] * (task.k / 32) + b];
    }
  }

  static void run(const std::byte* w, const std::byte* x, int64_t n, __m256 (&c)[kTokens][kGroups]) noexcept {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int64_t i = 0; i < n; ++i, w += kStripBytes, x += kTileBytes) {
      __m256i sum[kTokens][kGroups];
      for (int t = 0; t < kTokens; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int p = 0; p < 8; ++p) {
        const __m256i weights[2] = {load_256(w, 64 * p), load_256(w, 64 * p + 32)};
        const __m256i magnitudes[2] = {_mm256_abs_epi8(weights[0]), _mm256_abs_epi8(weights[1])};
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) add_signed_bytes(weights, magnitudes, ones, dwords(x + 32 * t) + p, sum[t]);
      }
      add_terms<false>(sum, w + kD, nullptr, floats(x + kLaidD), c);
    }
  }
};
constexpr int kSignedTileTokens = 4;

struct KernelOf {
  template <class Format>
  GemmKernel of() const noexcept {
    if constexpr (Format::kOffset == 128) {  // weights of 8 bits
      return {};
    } else {
      return {&gemm<Bytes<Format>>, &gemm_scratch_bytes<Bytes<Format>>, kGemmRowStep};
    }
  }
};

template <class Format, int, int kTokens>
using OnePlane = Bytes<Format, kTokens>;

struct FewOf {
  template <class Format>
  GemmKernel of() const noexcept {
    if constexpr (BlockColumns<Format>::kSigned) {
      return skinny_of_tiles<SignedBytes, Format, 1, kSignedTileTokens>();
    } else {
      return skinny_of_tiles<OnePlane, Format, 1, kTileTokens>();
    }
  }
};

}  // namespace

GemmKernel skinny_a32_bytes_avx2(tensor::DType dtype) noexcept { return with_rows_a32(dtype, FewOf{}); }
GemmKernel gemm_a32_bytes_avx2(tensor::DType dtype) noexcept { return with_rows_a32(dtype, KernelOf{}); }

}  // namespace assay::backend::cpu
