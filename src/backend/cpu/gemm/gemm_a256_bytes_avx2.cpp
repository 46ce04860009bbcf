// Matrix-matrix products of the K-quants by AVX2's byte multiplication: vpmaddubsw multiplies unsigned weights with
// signed activations and adds pairs; as many pairs are added as words as cannot overflow, then the sub-block's integer
// scale widens them to the exact sum of the contract.
//   Where weights have an offset, a sum begins with minus the offset times its activations. Words wrap around, so only
// the sum without the offset has to fit: twice as many pairs.
#include "backend/cpu/gemm/gemm_avx2.h"
#include "backend/cpu/gemm/skinny_avx2.h"
#include "backend/cpu/gemm/superblock_columns_avx2.h"

namespace assay::backend::cpu {
namespace {

// The largest activation of a plane.
constexpr int kPlaneMax[2] = {127, 64};

// Dwords of activations (4 elements: two pairs, each in a word of its own) that one sum of words takes.
template <class Format>
constexpr int dwords_per_sum(int plane) {
  int n = Format::kSubBlock / 4;
  while (n * 2 * Format::kWeightMax * kPlaneMax[plane] > 32767) n /= 2;
  return n;
}
static_assert(dwords_per_sum<UnpackQ2_K>(0) == 4 && dwords_per_sum<UnpackQ3_K>(0) == 4 &&
              dwords_per_sum<UnpackQ4_K>(0) == 8 && dwords_per_sum<UnpackQ5_K>(0) == 4 &&
              dwords_per_sum<UnpackQ6_K>(0) == 4);
static_assert(dwords_per_sum<UnpackQ4_K>(1) == 8 && dwords_per_sum<UnpackQ5_K>(1) == 8);
static_assert(2 * 63 * 127 <= 32767);                               // no pair saturates
static_assert(int64_t{256} * 127 * 32 * 128 < (int64_t{1} << 31));  // Q6_K, the largest I

constexpr int kTileTokens =
    3;  // with two groups: 6 sums of words and 6 of the superblock, and four registers to work with

// A superblock of a strip in the panel: 64 dwords of every row, the scales as pairs (s, s), the minima as pairs of
// words, d, m.
template <class Format>
struct Panel {
  static constexpr int kSubs = 256 / Format::kSubBlock, kMinimumPairs = Format::kHasMin ? kSubs / 2 : 0;
  static constexpr int64_t kScales = 64 * 64, kMinima = kScales + kSubs * 64, kD = kMinima + kMinimumPairs * 64;
  static constexpr int64_t kBytes = kD + (Format::kHasMin ? 2 : 1) * 64;

  static void build(const LinearTask& task, const std::byte** p, std::byte* out) noexcept {
    const ColumnsOf<Format> columns(task, p);
    columns.weights([&](int unit, int i, __m256i w) { store_256(w, out + 64 * (8 * unit + i)); });
    for (int i = 0; i < kSubs; ++i) {
      store_256(_mm256_srai_epi16(columns.scales[i], 8), out + kScales + 64 * i);
    }
    for (int i = 0; i < kMinimumPairs; ++i) {
      store_256(_mm256_blend_epi16(columns.minima[2 * i], columns.minima[2 * i + 1], 0xAA), out + kMinima + 64 * i);
    }
    const Scales& s = columns.scales_of_blocks;
    _mm256_store_ps(reinterpret_cast<float*>(out + kD), s.d);
    if constexpr (Format::kHasMin) _mm256_store_ps(reinterpret_cast<float*>(out + kD + 64), s.m);
    for (int64_t i = 0; i < kRows; ++i) p[i] += Format::block_bytes(task);
  }
};

// A superblock of a tile's activations. Of each plane: the elements as [8 units of 32][token][32]; then of every token
// what the sums begin with (16 of a sub-block of 16 each, pairs of words), or where the format has a minimum the sums
// of its sub-blocks (pairs of words). Then d.
template <class Format, int kPlanes, int kTokens>
struct Laid {
  static constexpr int64_t kSumBytes = 64;  // of a token
  static constexpr int64_t kSums = 8 * kTokens * 32, kPlane = kSums + kTokens * kSumBytes;
  static constexpr int64_t kD = kPlanes * kPlane, kBytes = kD + 32;

  static void put_starts(const int8_t* q, std::byte* out) noexcept {
    for (int unit = 0; unit < 8; ++unit) {
      const __m256i x = load_256(q + 32 * unit);
      __m256i sum = _mm256_maddubs_epi16(_mm256_set1_epi8(Format::kOffset), x);
      sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0x4E));
      sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0xB1));
      sum = _mm256_sub_epi16(_mm256_setzero_si256(), sum);
      _mm_storeu_si32(out + 8 * unit, _mm256_castsi256_si128(sum));
      _mm_storeu_si32(out + 8 * unit + 4, _mm256_extracti128_si256(sum, 1));
    }
  }

  static void put_sums(const int16_t* sums, std::byte* out) noexcept {
    const __m256i words = load_256(sums);
    if constexpr (Format::kSubBlock == 16) {
      store_256(words, out);
    } else {
      const __m256i sums_32 = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
      const __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(sums_32), _mm256_extracti128_si256(sums_32, 1));
      _mm_store_si128(reinterpret_cast<__m128i*>(out), packed);
    }
  }

  static void lay(const LinearTask& task, const int64_t* rows, int64_t b, std::byte* out) noexcept {
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = rows[t] * task.k + 256 * b;
      for (int plane = 0; plane < kPlanes; ++plane) {
        std::byte* to = out + plane * kPlane;
        const int8_t* q = (plane == 0 ? task.x.q : task.x.l) + at;
        for (int unit = 0; unit < 8; ++unit) store_256(load_256(q + 32 * unit), to + 32 * (kTokens * unit + t));
        if constexpr (Format::kHasMin) {
          put_sums((plane == 0 ? task.x.q_sums : task.x.l_sums) + at / 16, to + kSums + kSumBytes * t);
        } else {
          put_starts(q, to + kSums + kSumBytes * t);
        }
      }
      reinterpret_cast<float*>(out + kD)[t] = task.x.d[rows[t] * (task.k / 256) + b];
    }
  }
};

template <class Format, int kPlanes, int kTokensOfTile = kTileTokens>
struct Bytes {
  using P = Panel<Format>;
  using L = Laid<Format, kPlanes, kTokensOfTile>;
  static constexpr int64_t kBlock = 256, kBlocksNear = 2, kStripBytes = P::kBytes, kTileBytes = L::kBytes;
  static constexpr int kTokens = kTokensOfTile;
  using Sums = __m256i[kTokens][kGroups];

  static void build(const LinearTask& task, const std::byte** p, std::byte* out) noexcept { P::build(task, p, out); }
  static void lay(const LinearTask& task, const int64_t* rows, int64_t b, std::byte* out) noexcept {
    L::lay(task, rows, b, out);
  }

  // I of a superblock for one plane.
  template <int kPlane>
  static void superblock(const std::byte* w, const std::byte* x, Sums& total) noexcept {
    constexpr int kPerSum = dwords_per_sum<Format>(kPlane);
    const std::byte *scale = w + P::kScales, *start = x + L::kSums;
    for (int t = 0; t < kTokens; ++t) total[t][0] = total[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int unit = 0; unit < 8;
         ++unit, w += 8 * 64, x += kTokens * 32, scale += 64 * (32 / Format::kSubBlock), start += 8) {
#pragma GCC unroll 8
      for (int first = 0; first < 8; first += kPerSum) {
        Sums words;
        const __m256i a = load_256(w, 64 * first), b = load_256(w, 64 * first + 32);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          if constexpr (Format::kHasMin) {
            begin_bytes(a, b, dwords(x + 32 * t) + first, words[t]);
          } else {
            begin_bytes_at(a, b, dwords(x + 32 * t) + first, dwords(start + L::kSumBytes * t) + first / 4, words[t]);
          }
        }
#pragma GCC unroll 8
        for (int p = first + 1; p < first + kPerSum; ++p) {
          const __m256i c = load_256(w, 64 * p), d = load_256(w, 64 * p + 32);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) add_bytes(c, d, dwords(x + 32 * t) + p, words[t]);
        }
        const std::byte* s = scale + 64 * (4 * first / Format::kSubBlock);
        for (int t = 0; t < kTokens; ++t) {
          for (int g = 0; g < kGroups; ++g) add_scaled(words[t][g], s + 32 * g, total[t][g]);
        }
      }
    }
  }

  // M of a superblock.
  static __m256 minima(const std::byte* w, const std::byte* sums, int g) noexcept {
    __m256i sum = _mm256_setzero_si256();
    for (int p = 0; p < P::kMinimumPairs; ++p) {
      sum = _mm256_add_epi32(
          sum, _mm256_madd_epi16(load_256(w, P::kMinima + 64 * p + 32 * g), _mm256_set1_epi32(dwords(sums)[p])));
    }
    return _mm256_cvtepi32_ps(sum);
  }

  static void run(const std::byte* w, const std::byte* x, int64_t n, __m256 (&c)[kTokens][kGroups]) noexcept {
    const __m256 fine = _mm256_set1_ps(0x1p-7f);
    for (int64_t i = 0; i < n; ++i, w += kStripBytes, x += kTileBytes) {
      Sums total;
      __m256 f[kTokens][kGroups];
      superblock<0>(w, x, total);
      for (int t = 0; t < kTokens; ++t) {
        for (int g = 0; g < kGroups; ++g) f[t][g] = _mm256_cvtepi32_ps(total[t][g]);
      }
      if constexpr (kPlanes == 2) superblock<1>(w, x + L::kPlane, total);
      for (int t = 0; t < kTokens; ++t) {
        const __m256 d_of_token = _mm256_set1_ps(floats(x + L::kD)[t]);
        const std::byte* sums = x + L::kSums + L::kSumBytes * t;
        for (int g = 0; g < kGroups; ++g) {
          if constexpr (kPlanes == 2) f[t][g] = _mm256_fmadd_ps(fine, _mm256_cvtepi32_ps(total[t][g]), f[t][g]);
          const __m256 d = _mm256_load_ps(floats(w + P::kD + 32 * g));
          __m256 term;
          if constexpr (Format::kHasMin) {
            __m256 m = minima(w, sums, g);
            if constexpr (kPlanes == 2) m = _mm256_fmadd_ps(fine, minima(w, sums + L::kPlane, g), m);
            term = _mm256_fmadd_ps(d, f[t][g], _mm256_mul_ps(_mm256_load_ps(floats(w + P::kD + 64 + 32 * g)), m));
          } else {
            term = _mm256_mul_ps(d, f[t][g]);
          }
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
      return {};
    } else {
      return {&gemm<Bytes<Format, 1>>, &gemm_scratch_bytes<Bytes<Format, 1>>, kGemmRowStep};
    }
  }
};

template <class Format>
GemmKernel few(int planes) noexcept {
  return planes == 2 ? skinny_of_tiles<Bytes, Format, 2, kTileTokens>()
                     : skinny_of_tiles<Bytes, Format, 1, kTileTokens>();
}

}  // namespace

GemmKernel skinny_a256_avx2(tensor::DType dtype, int planes) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_K: return few<UnpackQ4_K>(planes);
    case DType::Q5_K: return few<UnpackQ5_K>(planes);
    case DType::Q6_K: return few<UnpackQ6_K>(planes);
    default: return {};
  }
}

GemmKernel gemm_a256_bytes_avx2(tensor::DType dtype) noexcept { return with_unpack_a256(dtype, KernelOf{}); }

}  // namespace assay::backend::cpu
