// Matrix-matrix products of the formats with superblocks of 256 and activations of two planes, by AVX2. Both sides
// become words, and both planes one integer (joined_planes.h): one vpmaddwd multiplies 2 elements of 8 rows with 2 of
// one token, and nothing is left to do for the integer scales.
#include "backend/cpu/gemm/gemm_avx2.h"
#include "backend/cpu/gemm/skinny_avx2.h"
#include "backend/cpu/gemm/superblock_columns_avx2.h"
#include "backend/cpu/gemv/joined_planes.h"

namespace assay::backend::cpu {
namespace {

constexpr int kTileTokens = 6;  // all 12 sums in registers

inline __m256 magnitude(__m256 v) noexcept { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

// A superblock of a strip in the panel: of 32 elements at a time 8 pairs of elements 4r and 4r + 2 of every row, then 8
// of elements 4r + 1 and 4r + 3; (128 m, m) of each sub-block's minimum; d and m, / 128; |w|.
template <class Format>
struct Panel {
  static_assert(Format::kWeightMax * Format::kScaleMax <= 4096);
  static constexpr int kSubs = 256 / Format::kSubBlock, kMinima = Format::kHasMin ? kSubs : 0;
  static constexpr int64_t kMinimaAt = 128 * 64, kD = kMinimaAt + kMinima * 64,
                           kNorm = kD + (Format::kHasMin ? 2 : 1) * 64;
  using Columns = ColumnsOf<Format>;
  static_assert((Columns::kStored + Format::kWeightMax) * Format::kScaleMax <= 32767 && Format::kScaleMax <= 128);
  // The largest |w| there can be; small enough for every second plane, it need not be computed.
  static constexpr float kNormMax = 16.0f * Format::kWeightMax * Format::kScaleMax;
  static constexpr bool kNormKnown = kNormMax * 16 * 64 <= kNormsOfL;
  static constexpr int64_t kBytes = kNorm + (kNormKnown ? 0 : 64);

  static void build(const LinearTask& task, const std::byte** p, std::byte* out) noexcept {
    const Columns columns(task, p);
    build_weights(columns, out);
    for (int i = 0; i < kMinima; ++i) {
      store_256(_mm256_mullo_epi16(columns.minima[i], _mm256_set1_epi32(0x00010080)), out + kMinimaAt + 64 * i);
    }
    const Scales& s = columns.scales_of_blocks;
    const __m256 part = _mm256_set1_ps(0x1p-7f);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD), _mm256_mul_ps(s.d, part));
    if constexpr (Format::kHasMin) _mm256_store_ps(reinterpret_cast<float*>(out + kD + 64), _mm256_mul_ps(s.m, part));
    for (int64_t i = 0; i < kRows; ++i) p[i] += Format::block_bytes(task);
  }

  static void build_weights(const Columns& columns, std::byte* out) noexcept {
    // The scale of a sub-block as a byte for the even and for the odd elements; the weights' offset times it.
    __m256i scales[kSubs][2], stored[kSubs], squares[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int i = 0; i < kSubs; ++i) {
      scales[i][1] = columns.scales[i];
      scales[i][0] = _mm256_srli_epi16(scales[i][1], 8);
      stored[i] = _mm256_mullo_epi16(_mm256_srai_epi16(scales[i][1], 8), _mm256_set1_epi16(Columns::kStored));
    }
    columns.weights([&](int unit, int i, __m256i w) {
      const int sub = (8 * unit + i) * 4 / Format::kSubBlock;
      for (int parity = 0; parity < 2; ++parity) {
        __m256i pairs = _mm256_maddubs_epi16(w, scales[sub][parity]);
        if constexpr (Columns::kStored != 0) pairs = _mm256_sub_epi16(pairs, stored[sub]);
        store_256(pairs, out + 64 * (16 * unit + 8 * parity + i));
        // Each sum at most 128 * 4096^2 = 2^31, which fits without sign.
        if constexpr (!kNormKnown) squares[parity] = _mm256_add_epi32(squares[parity], _mm256_madd_epi16(pairs, pairs));
      }
    });
    if constexpr (!kNormKnown) {
      const __m256 square = _mm256_add_ps(half_of(squares[0]), half_of(squares[1]));
      const __m256 norm = _mm256_mul_ps(_mm256_sqrt_ps(_mm256_add_ps(square, square)), _mm256_set1_ps(kNormAbove));
      _mm256_store_ps(reinterpret_cast<float*>(out + kNorm), norm);
    }
  }

  // |w| of the rows of a group.
  static __m256 norm(const std::byte* w, int g) noexcept {
    return kNormKnown ? _mm256_set1_ps(kNormMax) : _mm256_load_ps(floats(w + kNorm + 32 * g));
  }

  // Of numbers without sign, rounded up.
  static __m256 half_of(__m256i v) noexcept {
    return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_srli_epi32(v, 1), _mm256_set1_epi32(1)));
  }
};

// A superblock of a tile's activations: [16 units of 8 pairs][token][pair]; (sum of q, sum of l) of every sub-block
// where the format has minima.
template <class Format, int kTokens>
struct Laid {
  static constexpr int64_t kSumBytes = 64;  // of a token
  static constexpr int64_t kSums = 16 * kTokens * 32, kHead = kSums + (Format::kHasMin ? kTokens * kSumBytes : 0);
  struct Head {
    float d[kTokens], norm_q[kTokens], norm_l[kTokens];
    float norm_q_max, norm_l_max;
    const int8_t *q[kTokens], *l[kTokens];
  };
  static constexpr int64_t kBytes = kHead + (static_cast<int64_t>(sizeof(Head)) + 31) / 32 * 32;

  static const Head& head(const std::byte* x) noexcept { return *reinterpret_cast<const Head*>(x + kHead); }

  static void lay(const LinearTask& task, const int64_t* rows, int64_t b, std::byte* out) noexcept {
    Head& head = *reinterpret_cast<Head*>(out + kHead);
    head.norm_q_max = head.norm_l_max = 0;
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = rows[t] * task.k + 256 * b;
      head.q[t] = task.x.q + at;
      head.l[t] = task.x.l + at;
      head.d[t] = task.x.d[rows[t] * (task.k / 256) + b];
      lay_pairs(head.q[t], head.l[t], out + 32 * t);
      head.norm_q[t] = norm(head.q[t]);
      head.norm_l[t] = norm(head.l[t]);
      if (head.norm_q[t] > head.norm_q_max) head.norm_q_max = head.norm_q[t];
      if (head.norm_l[t] > head.norm_l_max) head.norm_l_max = head.norm_l[t];
      if constexpr (Format::kHasMin)
        lay_sums(task.x.q_sums + at / 16, task.x.l_sums + at / 16, out + kSums + kSumBytes * t);
    }
  }

  static void lay_pairs(const int8_t* q, const int8_t* l, std::byte* out) noexcept {
    for (int unit = 0; unit < 8; ++unit) {
      const WordPairs words = joined_words(load_256(q + 32 * unit), load_256(l + 32 * unit));
      store_256(words.even, out + 32 * kTokens * (2 * unit));
      store_256(words.odd, out + 32 * kTokens * (2 * unit + 1));
    }
  }

  static float norm(const int8_t* plane) noexcept {
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < 256; i += 32) {
      const __m256i v = _mm256_abs_epi8(load_256(plane + i));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(v, v), _mm256_set1_epi16(1)));
    }
    __m128i of_4 = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    of_4 = _mm_add_epi32(of_4, _mm_shuffle_epi32(of_4, 0x4E));
    of_4 = _mm_add_epi32(of_4, _mm_shuffle_epi32(of_4, 0xB1));
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_cvtepi32_ps(of_4))) * kNormAbove;
  }

  static void lay_sums(const int16_t* q_sums, const int16_t* l_sums, std::byte* out) noexcept {
    const __m256i q = load_256(q_sums), l = load_256(l_sums);
    if constexpr (Format::kSubBlock == 32) {
      const __m256i ones = _mm256_set1_epi16(1), zero = _mm256_setzero_si256();
      const auto of_32 = [&](__m256i of_16) { return _mm256_packs_epi32(_mm256_madd_epi16(of_16, ones), zero); };
      store_256(_mm256_unpacklo_epi16(of_32(q), of_32(l)), out);
    } else {
      const __m256i low = _mm256_unpacklo_epi16(q, l), high = _mm256_unpackhi_epi16(q, l);
      store_256(_mm256_permute2x128_si256(low, high, 0x20), out);
      store_256(_mm256_permute2x128_si256(low, high, 0x31), out + 32);
    }
  }
};

template <class Format, int kTokensOfTile = kTileTokens>
struct Words {
  using P = Panel<Format>;
  using L = Laid<Format, kTokensOfTile>;
  static constexpr int64_t kBlock = 256, kBlocksNear = 1, kStripBytes = P::kBytes, kTileBytes = L::kBytes;
  static constexpr int kTokens = kTokensOfTile;

  static void build(const LinearTask& task, const std::byte** p, std::byte* out) noexcept { P::build(task, p, out); }
  static void lay(const LinearTask& task, const int64_t* rows, int64_t b, std::byte* out) noexcept {
    L::lay(task, rows, b, out);
  }

  // 128 G of a superblock.
  static __m256 minima(const std::byte* w, const std::byte* sums) noexcept {
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < P::kMinima; ++i)
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(load_256(w, 64 * i), _mm256_set1_epi32(dwords(sums)[i])));
    return _mm256_cvtepi32_ps(sum);
  }

  // 128 F of a superblock.
  static void dots(const std::byte* w, const std::byte* x, __m256 (&f)[kTokens][kGroups]) noexcept {
    __m256i sum[kTokens][kGroups];
    for (int t = 0; t < kTokens; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
    sums_of_words<16, kTokens>(w, x, sum);
    __m256 largest = _mm256_setzero_ps();
    for (int t = 0; t < kTokens; ++t) {
      for (int g = 0; g < kGroups; ++g) {
        f[t][g] = _mm256_cvtepi32_ps(sum[t][g]);
        largest = _mm256_max_ps(largest, magnitude(f[t][g]));
      }
    }
    const auto& head = L::head(x);
    const __m256 norm = _mm256_max_ps(P::norm(w, 0), P::norm(w, 1));
    const __m256 bad =
        _mm256_or_ps(_mm256_cmp_ps(largest, _mm256_set1_ps(kSeen), _CMP_GE_OQ),
                     _mm256_or_ps(above(norm, head.norm_q_max, kNormsOfQ), above(norm, head.norm_l_max, kNormsOfL)));
    if (_mm256_movemask_ps(bad) != 0) [[unlikely]]
      repair(w, head, f);
  }

  static __m256 above(__m256 norm, float norm_of_token, float limit) noexcept {
    return _mm256_cmp_ps(_mm256_mul_ps(norm, _mm256_set1_ps(norm_of_token)), _mm256_set1_ps(limit), _CMP_GT_OQ);
  }

  // Where C is not shown to give 128 F, that by the contract's own steps.
  [[gnu::noinline]] static void repair(const std::byte* w, const typename L::Head& head,
                                       __m256 (&f)[kTokens][kGroups]) noexcept {
    for (int t = 0; t < kTokens; ++t) {
      for (int g = 0; g < kGroups; ++g) {
        const __m256 norm = P::norm(w, g);
        const __m256 bad =
            _mm256_or_ps(_mm256_cmp_ps(magnitude(f[t][g]), _mm256_set1_ps(kSeen), _CMP_GE_OQ),
                         _mm256_or_ps(above(norm, head.norm_q[t], kNormsOfQ), above(norm, head.norm_l[t], kNormsOfL)));
        if (_mm256_movemask_ps(bad) == 0) continue;
        const __m256 first = dot_plane(w + 32 * g, head.q[t]), refined = dot_plane(w + 32 * g, head.l[t]);
        f[t][g] = _mm256_mul_ps(_mm256_fmadd_ps(_mm256_set1_ps(0x1p-7f), refined, first), _mm256_set1_ps(0x1p7f));
      }
    }
  }

  // float(I) of one plane, 8 rows and one token.
  static __m256 dot_plane(const std::byte* w, const int8_t* plane) noexcept {
    __m256i sum = _mm256_setzero_si256();
    for (int unit = 0; unit < 8; ++unit) {
      const WordPairs words = signed_words(load_256(plane + 32 * unit));
      alignas(32) int32_t pairs[16];
      _mm256_store_si256(reinterpret_cast<__m256i*>(pairs), words.even);
      _mm256_store_si256(reinterpret_cast<__m256i*>(pairs + 8), words.odd);
      for (int p = 0; p < 16; ++p) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(load_256(w, 64 * (16 * unit + p)), _mm256_set1_epi32(pairs[p])));
      }
    }
    return _mm256_cvtepi32_ps(sum);
  }

  static void run(const std::byte* w, const std::byte* x, int64_t n, __m256 (&c)[kTokens][kGroups]) noexcept {
    for (int64_t i = 0; i < n; ++i, w += kStripBytes, x += kTileBytes) {
      __m256 f[kTokens][kGroups];
      dots(w, x, f);
      for (int t = 0; t < kTokens; ++t) {
        const __m256 d_of_token = _mm256_set1_ps(L::head(x).d[t]);
        for (int g = 0; g < kGroups; ++g) {
          const __m256 d = _mm256_load_ps(floats(w + P::kD + 32 * g));
          __m256 term;
          if constexpr (Format::kHasMin) {
            const __m256 m = minima(w + P::kMinimaAt + 32 * g, x + L::kSums + L::kSumBytes * t);
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

template <class Format, int, int kTokens>
using BothPlanes = Words<Format, kTokens>;

struct KernelOf {
  template <class Format>
  GemmKernel of() const noexcept {
    return skinny_of_tiles<BothPlanes, Format, 2, kTileTokens>();
  }
};

}  // namespace

GemmKernel gemm_a256_words_avx2(tensor::DType dtype) noexcept { return with_unpack_a256(dtype, KernelOf{}); }

}  // namespace assay::backend::cpu
