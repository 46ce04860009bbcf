// Matrix-matrix products of the formats with superblocks of 256 and activations of one plane, by AVX-512 VNNI: one
// vpdpbusd multiplies 4 elements of 16 rows with 4 of one token.
//   The sum S of a sub-block is multiplied with its integer scale by one vpdpwssd too, which takes it as a word (the
// scale's other word is 0), so S has to lie in 16 bits: |S| <= w * sum |x|, w the largest magnitude of a weight.
// Formats for which that may be more (kChecked) have the sums of |x| looked at when the tokens are laid out; a token
// whose activations are near their bound all over is multiplied again with scales of 32 bits. Of Q5_K w is halved by
// weights around 16, whose share 16 * sum sc_j * B_j is added as the minima are.
#include "backend/cpu/gemm/gemm_loops_avx512.h"
#include "backend/cpu/gemm/superblock_columns_avx512.h"

namespace assay::backend::cpu {
namespace {

template <class Format>
constexpr int kCentre = 0;  // weights are taken as weight - kCentre
template <>
constexpr int kCentre<UnpackQ5_K> = 16;

// How the sums of sub-blocks meet their scales.
template <class Format>
struct Range {
  static constexpr int kSubs = 256 / Format::kSubBlock;
  static constexpr int kWeightMax = kCentre<Format> != 0 ? kCentre<Format> : Format::kWeightMax;
  static constexpr int kSumMax = 32767 / kWeightMax;                  // of |x| in a sub-block, that S may be a word
  static constexpr bool kNarrow = kSumMax >= Format::kSubBlock * 48;  // sums beyond 48 an element are rare
  static constexpr bool kChecked = kNarrow && kSumMax < Format::kSubBlock * 127;
  static_assert(kCentre<Format> == 0 || (Format::kWeightMax < 2 * kCentre<Format> && Format::kOffset == 0));
  static_assert(int64_t{256} * 127 * Format::kWeightMax * Format::kScaleMax < int64_t{1} << 31);
  static_assert(int64_t{kSubs} * 32768 * Format::kScaleMax < int64_t{1} << 31);
};
static_assert(Range<UnpackQ4_K>::kNarrow && Range<UnpackQ5_K>::kNarrow && Range<UnpackQ6_K>::kNarrow);

template <int kSubs, int kMinima_, bool kCentred>
struct alignas(64) BytesPanel {
  uint8_t weights[64][64];  // 4 elements of each row
  int32_t scales[kSubs][16];
  int16_t minima[kMinima_ == 0 ? 1 : kMinima_][32];    // of two sub-blocks
  int16_t centre_scales[kCentred ? kMinima_ : 1][32];  // the same of kCentre * scale
  float d[16], m[16];
};

template <int kTokens>
struct alignas(64) BytesSide {
  int8_t q[kTokens][256];
  int32_t start[kTokens][16];  // of every sub-block, where its sum of integers begins
  int32_t minima[kTokens][8];  // sums of two sub-blocks, words
  float d[kTokens];
  uint32_t wide;  // bits of tokens
};

template <class Format_>
struct Bytes {
  using Format = Format_;
  using R = Range<Format>;
  using Columns = ColumnsOf<Format>;
  static constexpr int kTokens = 6;
  static constexpr int kSubs = R::kSubs, kMinima = Format::kHasMin ? kSubs / 2 : 0;
  static constexpr int kStart =
      Columns::kStored + kCentre<Format>;  // a stored weight is this much larger than the one that is multiplied
  using Panel = BytesPanel<kSubs, kMinima, kCentre<Format> != 0>;
  using Side = BytesSide<kTokens>;

  static void unpack(const LinearTask& task, const std::byte* const* p, Panel& panel) noexcept {
    const Columns columns(task, p);
    columns.weights([&](int i, __m512i w) { _mm512_store_si512(panel.weights[i], w); });
    for (int i = 0; i < kSubs / 2; ++i) {
      const __m512i pair = columns.scale_pairs[i], first = _mm512_slli_epi32(pair, 16);
      _mm512_store_si512(panel.scales[2 * i], R::kNarrow ? _mm512_srli_epi32(first, 16) : _mm512_srai_epi32(first, 16));
      _mm512_store_si512(panel.scales[2 * i + 1],
                         R::kNarrow ? _mm512_srli_epi32(pair, 16) : _mm512_srai_epi32(pair, 16));
      if constexpr (kCentre<Format> != 0) {
        _mm512_store_si512(panel.centre_scales[i], _mm512_mullo_epi16(pair, _mm512_set1_epi16(kCentre<Format>)));
      }
      if constexpr (kMinima != 0) _mm512_store_si512(panel.minima[i], columns.min_pairs[i]);
    }
    _mm512_store_ps(panel.d, columns.d);
    _mm512_store_ps(panel.m, columns.m);
  }

  static void lay(const LinearTask& task, int64_t token, int64_t n, int64_t b, Side& side) noexcept {
    side.wide = 0;
    for (int64_t t = 0; t < n; ++t) {
      const int64_t row = token + t, at = row * task.k + 256 * b;
      __m512i largest = _mm512_setzero_si512();
      for (int i = 0; i < 4; ++i) {
        const __m512i q = _mm512_loadu_si512(task.x.q + at + 64 * i);
        _mm512_store_si512(side.q[t] + 64 * i, q);
        if constexpr (R::kChecked) largest = _mm512_max_epi32(largest, magnitudes(q));
      }
      if constexpr (R::kChecked) {
        if (_mm512_cmpgt_epi32_mask(largest, _mm512_set1_epi32(R::kSumMax)) != 0) side.wide |= 1u << t;
      }
      put_sums(load_256(task.x.q_sums + at / 16), side.start[t], side.minima[t]);
      side.d[t] = task.x.d[row * (task.k / 256) + b];
    }
  }

  // Sums of |x| in the sub-blocks of 64 elements; the lanes between them hold less.
  static __m512i magnitudes(__m512i q) noexcept {
    const __m512i eights = _mm512_sad_epu8(_mm512_abs_epi8(q), _mm512_setzero_si512());
    const __m512i sums = _mm512_add_epi32(eights, _mm512_shuffle_epi32(eights, _MM_PERM_BADC));
    return kSubs == 16 ? sums : _mm512_add_epi32(sums, _mm512_shuffle_i32x4(sums, sums, 0xB1));
  }

  // From the 16 sums of 16 activations.
  static void put_sums(__m256i sums, int32_t* start, int32_t* minima) noexcept {
    if constexpr (kSubs == 16) {
      if constexpr (kStart != 0)
        _mm512_store_si512(start, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(sums), _mm512_set1_epi32(-kStart)));
      if constexpr (kMinima != 0) _mm256_store_si256(reinterpret_cast<__m256i*>(minima), sums);
    } else {
      if constexpr (kStart != 0)
        _mm256_store_si256(reinterpret_cast<__m256i*>(start), _mm256_madd_epi16(sums, _mm256_set1_epi16(-kStart)));
      if constexpr (kMinima != 0) {
        const __m256i of_subs = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
        _mm_store_si128(reinterpret_cast<__m128i*>(minima), _mm256_cvtepi32_epi16(of_subs));
      }
    }
  }

  template <int kUsed>
  static void dots(const Panel* panels, const Side& side, __m512 (&f)[2][kUsed]) noexcept;
};

#define ASSAY_IF_USED(token, text) ".if " #token " < %c[used]\n" text ".endif\n"  // in a tile of fewer tokens
// The registers of a tile in the assembler text below: token, 4 of its elements, sums of a sub-block with the first and
// with the second group, sums of the superblock.
#define ASSAY_TOKENS(X)  \
  X(0, 2, 8, 14, 20, 26) \
  X(1, 3, 9, 15, 21, 27) X(2, 4, 10, 16, 22, 28) X(3, 5, 11, 17, 23, 29) X(4, 6, 12, 18, 24, 30) X(5, 7, 13, 19, 25, 31)
#define ASSAY_CLEAR(token, x, a, b, c, d)                          \
  ASSAY_IF_USED(token, "vpxord %%zmm" #c ", %%zmm" #c ", %%zmm" #c \
                       "\n"                                        \
                       "vpxord %%zmm" #d ", %%zmm" #d ", %%zmm" #d "\n")
#define ASSAY_BEGIN(token, x, a, b, c, d)                          \
  ASSAY_IF_USED(token,                                             \
                ".if %c[starts]\n"                                 \
                "vpbroadcastd 64 * " #token "(%[start]), %%zmm" #a \
                "\n"                                               \
                "vmovdqa64 %%zmm" #a ", %%zmm" #b                  \
                "\n"                                               \
                ".else\n"                                          \
                "vpxord %%zmm" #a ", %%zmm" #a ", %%zmm" #a        \
                "\n"                                               \
                "vpxord %%zmm" #b ", %%zmm" #b ", %%zmm" #b        \
                "\n"                                               \
                ".endif\n")
#define ASSAY_LOAD(token, x, a, b, c, d) \
  ASSAY_IF_USED(token, "vpbroadcastd 256 * " #token " + 4 * \\step(%[x]), %%zmm" #x "\n")
#define ASSAY_DOT(token, x, a, b, c, d)                         \
  ASSAY_IF_USED(token, "vpdpbusd %%zmm" #x ", %%zmm0, %%zmm" #a \
                       "\n"                                     \
                       "vpdpbusd %%zmm" #x ", %%zmm1, %%zmm" #b "\n")
#define ASSAY_SCALE(token, x, a, b, c, d)                   \
  ASSAY_IF_USED(token,                                      \
                ".if %c[narrow]\n"                          \
                "vpdpwssd %%zmm0, %%zmm" #a ", %%zmm" #c    \
                "\n"                                        \
                "vpdpwssd %%zmm1, %%zmm" #b ", %%zmm" #d    \
                "\n"                                        \
                ".else\n"                                   \
                "vpmulld %%zmm0, %%zmm" #a ", %%zmm" #a     \
                "\n"                                        \
                "vpmulld %%zmm1, %%zmm" #b ", %%zmm" #b     \
                "\n"                                        \
                "vpaddd %%zmm" #a ", %%zmm" #c ", %%zmm" #c \
                "\n"                                        \
                "vpaddd %%zmm" #b ", %%zmm" #d ", %%zmm" #d \
                "\n"                                        \
                ".endif\n")
#define ASSAY_STORE(token, x, a, b, c, d)                    \
  ASSAY_IF_USED(token, "vmovdqa64 %%zmm" #c ", 64 * " #token \
                       "(%[sum])\n"                          \
                       "vmovdqa64 %%zmm" #d ", 64 * (" #token " + %c[used])(%[sum])\n")

// I of a superblock for every token and both groups, without the share of kCentre. In assembler because compilers spill
// the 24 sums.
template <class Kernel, int kUsed>
inline void dot_bytes(const typename Kernel::Panel* panels, const typename Kernel::Side& side,
                      __m512i (&sum)[2][kUsed]) noexcept {
  static_assert(sizeof(side.q[0]) == 256 && sizeof(side.start[0]) == 64);
  const void *low = panels[0].weights, *high = panels[1].weights, *x = side.q, *start = side.start;
  const void *low_scale = panels[0].scales, *high_scale = panels[1].scales;
  int64_t subs = Kernel::kSubs;
  asm volatile(ASSAY_TOKENS(ASSAY_CLEAR)
               ".p2align 5\n1:\n"
               ASSAY_TOKENS(ASSAY_BEGIN)
               ".irp step, 0, 1, 2, 3, 4, 5, 6, 7\n"
               ".if \\step < %c[steps]\n"
               "vmovdqa64 64 * \\step(%[low]), %%zmm0\n"
               "vmovdqa64 64 * \\step(%[high]), %%zmm1\n"
               ASSAY_TOKENS(ASSAY_LOAD)
               ASSAY_TOKENS(ASSAY_DOT)
               ".endif\n"
               ".endr\n"
               "vmovdqa64 (%[low_scale]), %%zmm0\nvmovdqa64 (%[high_scale]), %%zmm1\n"
               ASSAY_TOKENS(ASSAY_SCALE)
               "addq $64 * %c[steps], %[low]\naddq $64 * %c[steps], %[high]\naddq $4 * %c[steps], %[x]\n"
               "addq $64, %[low_scale]\naddq $64, %[high_scale]\naddq $4, %[start]\n"
               "decq %[subs]\njnz 1b\n"
               ASSAY_TOKENS(ASSAY_STORE)
               : [low] "+r"(low), [high] "+r"(high), [low_scale] "+r"(low_scale), [high_scale] "+r"(high_scale), [x] "+r"(x),
                 [start] "+r"(start), [subs] "+r"(subs)
               : [sum] "r"(sum), [used] "i"(kUsed), [steps] "i"(64 / Kernel::kSubs), [starts] "i"(Kernel::kStart != 0 ? 1 : 0),
                 [narrow] "i"(Kernel::R::kNarrow ? 1 : 0)
               : "memory", "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12", "zmm13", "zmm14",
                 "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30", "zmm31");
}

// The same for one token and one group, with scales of 32 bits.
template <class Kernel>
[[gnu::noinline]] __m512i dot_wide(const typename Kernel::Panel& panel, const int8_t* q,
                                   const int32_t* start) noexcept {
  __m512i total = _mm512_setzero_si512();
  for (int sub = 0; sub < Kernel::kSubs; ++sub) {
    __m512i sum = _mm512_set1_epi32(Kernel::kStart != 0 ? start[sub] : 0);
    for (int i = sub * 64 / Kernel::kSubs; i < (sub + 1) * 64 / Kernel::kSubs; ++i) {
      sum = _mm512_dpbusd_epi32(sum, _mm512_load_si512(panel.weights[i]), broadcast_4(q + 4 * i));
    }
    const __m512i scale = _mm512_srai_epi32(_mm512_slli_epi32(_mm512_load_si512(panel.scales[sub]), 16), 16);
    total = _mm512_add_epi32(total, _mm512_mullo_epi32(sum, scale));
  }
  return total;
}

template <class Format_>
template <int kUsed>
inline void Bytes<Format_>::dots(const Panel* panels, const Side& side, __m512 (&f)[2][kUsed]) noexcept {
  __m512i sums[2][kUsed];
  dot_bytes<Bytes, kUsed>(panels, side, sums);
  if (R::kChecked && side.wide != 0) [[unlikely]] {
    for (int t = 0; t < kUsed; ++t) {
      if ((side.wide >> t & 1) == 0) continue;
      for (int g = 0; g < 2; ++g) sums[g][t] = dot_wide<Bytes>(panels[g], side.q[t], side.start[t]);
    }
  }
  for (int g = 0; g < 2; ++g) {
    if constexpr (kCentre<Format> != 0) add_pairs<kMinima>(panels[g].centre_scales, side.minima, sums[g]);
    for (int t = 0; t < kUsed; ++t) f[g][t] = _mm512_cvtepi32_ps(sums[g][t]);
  }
}

struct KernelOf {
  template <class Format>
  GemmKernel of() const noexcept {
    return walk_kernel<Bytes<Format>>();
  }
};

}  // namespace

GemmKernel gemm_a256_avx512(tensor::DType dtype) noexcept { return with_unpack_a256(dtype, KernelOf{}); }

}  // namespace assay::backend::cpu
