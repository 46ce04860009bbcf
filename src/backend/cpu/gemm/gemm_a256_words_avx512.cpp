// Matrix-matrix products of the formats with superblocks of 256 and activations of two planes, by AVX-512 VNNI. Both
// sides become words: the weights times the scale of their sub-block (at most 4096), the activations as x = 128 q + l.
// One vpdpwssd multiplies 2 elements of 16 rows with 2 of one token, and a superblock is one chain of integers for both
// planes (joined_planes.h): half the instructions of two planes of bytes, and no work for scales.
#include "backend/cpu/gemm/gemm_loops_avx512.h"
#include "backend/cpu/gemm/superblock_columns_avx512.h"
#include "backend/cpu/gemv/joined_planes.h"

namespace assay::backend::cpu {
namespace {

// A superblock of 16 rows. Of 4 elements that follow one another in a row, elements 0 and 2 make a pair and 1 and 3;
// see put_pairs.
template <int kMinima>
struct alignas(64) WordsPanel {
  int16_t pairs[128][32];
  int16_t minima[kMinima == 0 ? 1 : kMinima][32];  // (128 m, m) of a sub-block
  float d[16], m[16];                              // / 128
  float norm[16];                                  // |w| of each row
  float norm_max;
};

// A superblock of the tokens of a tile.
template <int kTokens>
struct alignas(64) WordsSide {
  int32_t pairs[kTokens][128];
  int32_t minima[kTokens][16];  // (sum of q, sum of l) of a sub-block
  float d[16], norm_q[16], norm_l[16];
  float norm_q_max, norm_l_max;
  const int8_t *q[kTokens], *l[kTokens];
};

// Elements 4r .. 4r + 3 of 16 rows, as words: elements 0 and 2, then 1 and 3. The order of pairs is that of make_pairs
// for the tokens.
constexpr int pair_of(int r) noexcept { return r / 16 * 32 + r % 16; }

// Sums over the 16 lanes of 16 registers.
inline __m512i add_lanes_16(const __m512i* v) noexcept {
  const auto fold_2 = [](__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  };
  const auto fold_4 = [](__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  };
  __m512i fours[4];  // in each 128 bits a part of the sums of 4 registers
  for (int i = 0; i < 4; ++i) fours[i] = fold_4(fold_2(v[4 * i], v[4 * i + 1]), fold_2(v[4 * i + 2], v[4 * i + 3]));
  const auto halves = [](__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xEE));
  };
  const __m512i low = halves(fours[0], fours[1]), high = halves(fours[2], fours[3]);
  return _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88), _mm512_shuffle_i32x4(low, high, 0xDD));
}

template <class Format_>
struct Words {
  using Format = Format_;
  static constexpr int kTokens = 12;
  static constexpr int kSubs = 256 / Format::kSubBlock;
  static constexpr int kMinima = Format::kHasMin ? kSubs : 0;
  using Columns = ColumnsOf<Format>;
  static_assert(Format::kWeightMax * Format::kScaleMax <= 4096);
  using Panel = WordsPanel<kMinima>;
  using Side = WordsSide<kTokens>;

  // The words of each pair, each doubled.
  static void double_words(const __m512i* pairs, __m512i* out) noexcept {
    const __m512i take_low = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
    const __m512i take_high = _mm512_add_epi8(take_low, _mm512_set1_epi8(2));
    for (int i = 0; i < kSubs; ++i) out[i] = _mm512_shuffle_epi8(pairs[i / 2], i % 2 == 0 ? take_low : take_high);
  }

  static void unpack(const LinearTask& task, const std::byte* const* p, Panel& panel) noexcept {
    const Columns columns(task, p);
    put_weights(columns, panel);
    if constexpr (kMinima != 0) {
      __m512i minima[kSubs];
      double_words(columns.min_pairs, minima);
      for (int i = 0; i < kSubs; ++i)
        _mm512_store_si512(panel.minima[i], _mm512_mullo_epi16(minima[i], _mm512_set1_epi32(0x00010080)));
    }
    const __m512 part = _mm512_set1_ps(0x1p-7f);
    _mm512_store_ps(panel.d, _mm512_mul_ps(columns.d, part));
    _mm512_store_ps(panel.m, _mm512_mul_ps(columns.m, part));
  }

  static void put_weights(const Columns& columns, Panel& panel) noexcept {
    __m512i scales[kSubs], squares[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    double_words(columns.scale_pairs, scales);
    const __m512i low_bytes = _mm512_set1_epi16(255), stored = _mm512_set1_epi16(Columns::kStored);
    columns.weights([&](int i, __m512i w) {
      const __m512i scale = scales[i / (64 / kSubs)];
      const __m512i even = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_and_si512(w, low_bytes), stored), scale);
      const __m512i odd = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_srli_epi16(w, 8), stored), scale);
      _mm512_store_si512(panel.pairs[pair_of(i)], even);
      _mm512_store_si512(panel.pairs[pair_of(i) + 16], odd);
      squares[0] =
          _mm512_dpwssd_epi32(squares[0], even, even);  // each at most 128 * 4096^2 = 2^31, which fits without sign
      squares[1] = _mm512_dpwssd_epi32(squares[1], odd, odd);
    });
    const __m512 square = _mm512_add_ps(_mm512_cvtepu32_ps(squares[0]), _mm512_cvtepu32_ps(squares[1]));
    const __m512 norm = _mm512_mul_ps(_mm512_sqrt_ps(square), _mm512_set1_ps(kNormAbove));
    _mm512_store_ps(panel.norm, norm);
    panel.norm_max = _mm512_reduce_max_ps(norm);
  }

  static void lay(const LinearTask& task, int64_t token, int64_t n, int64_t b, Side& side) noexcept {
    __m512i squares_q[16], squares_l[16];
    for (int t = 0; t < 16; ++t) squares_q[t] = squares_l[t] = _mm512_setzero_si512();
    const __m512i join = _mm512_set1_epi16(0x0180);  // 128 q + 1 l
    constexpr __mmask64 kOdd = 0xAAAAAAAAAAAAAAAA;
    const int8_t *of_q = task.x.q + token * task.k + 256 * b, *of_l = task.x.l + token * task.k + 256 * b;
    const float* d = task.x.d + token * (task.k / 256) + b;
    const int64_t k = task.k;
    for (int64_t t = 0; t < n; ++t, of_q += k, of_l += k, d += k / 256) {
      for (int i = 0; i < 4; ++i) {
        const __m512i q = _mm512_loadu_si512(of_q + 64 * i), l = _mm512_loadu_si512(of_l + 64 * i);
        _mm_prefetch(reinterpret_cast<const char*>(of_q + n * k + 64 * i), _MM_HINT_T0);  // of the next tile
        _mm_prefetch(reinterpret_cast<const char*>(of_l + n * k + 64 * i), _MM_HINT_T0);
        const __m512i even = _mm512_mask_blend_epi8(kOdd, q, _mm512_slli_epi16(l, 8));
        const __m512i odd = _mm512_mask_blend_epi8(kOdd, _mm512_srli_epi16(q, 8), l);
        _mm512_store_si512(side.pairs[t] + 32 * i, _mm512_maddubs_epi16(join, even));
        _mm512_store_si512(side.pairs[t] + 32 * i + 16, _mm512_maddubs_epi16(join, odd));
        const __m512i abs_q = _mm512_abs_epi8(q), abs_l = _mm512_abs_epi8(l);
        squares_q[t] = _mm512_dpbusd_epi32(squares_q[t], abs_q, abs_q);
        squares_l[t] = _mm512_dpbusd_epi32(squares_l[t], abs_l, abs_l);
      }
      side.q[t] = of_q;
      side.l[t] = of_l;
      side.d[t] = *d;
      if constexpr (kMinima != 0) put_sums(task, ((token + t) * k + 256 * b) / 16, side.minima[t]);
    }
    const auto norm = [](__m512i sums) {
      return _mm512_mul_ps(_mm512_sqrt_ps(_mm512_cvtepi32_ps(sums)), _mm512_set1_ps(kNormAbove));
    };
    const __m512 norm_q = norm(add_lanes_16(squares_q)), norm_l = norm(add_lanes_16(squares_l));
    _mm512_store_ps(side.norm_q, norm_q);
    _mm512_store_ps(side.norm_l, norm_l);
    side.norm_q_max = _mm512_reduce_max_ps(norm_q);
    side.norm_l_max = _mm512_reduce_max_ps(norm_l);
  }

  static void put_sums(const LinearTask& task, int64_t at, int32_t* out) noexcept {
    const __m512i q = _mm512_cvtepi16_epi32(load_256(task.x.q_sums + at)),
                  l = _mm512_cvtepi16_epi32(load_256(task.x.l_sums + at));
    __m512i sums = _mm512_mask_blend_epi16(0xAAAAAAAA, q, _mm512_slli_epi32(l, 16));
    if constexpr (kSubs == 8) {  // sub-blocks of 32: neighbours together
      sums = _mm512_add_epi16(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
      sums = _mm512_maskz_compress_epi32(0x5555, sums);
    }
    _mm512_store_si512(out, sums);
  }

  template <int kUsed>
  static void dots(const Panel* panels, const Side& side, __m512 (&f)[2][kUsed]) noexcept;
};

#define ASSAY_IF_USED(token, text) ".if " #token " < %c[used]\n" text ".endif\n"  // in a tile of fewer tokens
// The registers of a tile in the assembler text below: token, its sums with the first and with the second group.
#define ASSAY_TOKENS(X) \
  X(0, 8, 20)           \
  X(1, 9, 21)           \
  X(2, 10, 22)          \
  X(3, 11, 23) X(4, 12, 24) X(5, 13, 25) X(6, 14, 26) X(7, 15, 27) X(8, 16, 28) X(9, 17, 29) X(10, 18, 30) X(11, 19, 31)
#define ASSAY_CLEAR(token, a, b)                                   \
  ASSAY_IF_USED(token, "vpxord %%zmm" #a ", %%zmm" #a ", %%zmm" #a \
                       "\n"                                        \
                       "vpxord %%zmm" #b ", %%zmm" #b ", %%zmm" #b "\n")
#define ASSAY_STEP(token, a, b)                            \
  ASSAY_IF_USED(token, "vpbroadcastd 512 * " #token        \
                       " + 4 * \\step(%[x]), %%zmm2\n"     \
                       "vpdpwssd %%zmm2, %%zmm0, %%zmm" #a \
                       "\n"                                \
                       "vpdpwssd %%zmm2, %%zmm1, %%zmm" #b "\n")
#define ASSAY_STORE(token, a, b)                             \
  ASSAY_IF_USED(token, "vmovdqa64 %%zmm" #a ", 64 * " #token \
                       "(%[sum])\n"                          \
                       "vmovdqa64 %%zmm" #b ", 64 * (" #token " + %c[used])(%[sum])\n")

// C of a superblock for every token and both groups. In assembler because compilers move the 24 sums about, or spill
// them.
template <class PanelType, class SideType, int kUsed>
inline void dot_words(const PanelType* panels, const SideType& side, __m512i (&sum)[2][kUsed]) noexcept {
  static_assert(sizeof(side.pairs[0]) == 512);
  const void *low = panels[0].pairs, *high = panels[1].pairs, *x = side.pairs;
  int64_t steps = 128 / 4;
  asm volatile(ASSAY_TOKENS(ASSAY_CLEAR)
               ".p2align 5\n1:\n"
               ".irp step, 0, 1, 2, 3\n"
               "vmovdqa64 64 * \\step(%[low]), %%zmm0\n"
               "vmovdqa64 64 * \\step(%[high]), %%zmm1\n"
               ASSAY_TOKENS(ASSAY_STEP)
               ".endr\n"
               "addq $256, %[low]\naddq $256, %[high]\naddq $16, %[x]\n"
               "decq %[steps]\njnz 1b\n"
               ASSAY_TOKENS(ASSAY_STORE)
               : [low] "+r"(low), [high] "+r"(high), [x] "+r"(x), [steps] "+r"(steps)
               : [sum] "r"(sum), [used] "i"(kUsed)
               : "memory", "cc", "zmm0", "zmm1", "zmm2", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17",
                 "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30", "zmm31");
}

// I of one plane, 16 rows and one token.
template <class PanelType>
inline __m512i dot_plane(const PanelType& panel, const int8_t* plane) noexcept {
  alignas(64) int32_t pairs[128];
  for (int i = 0; i < 4; ++i) {
    const __m512i bytes = _mm512_loadu_si512(plane + 64 * i);
    _mm512_store_si512(pairs + 32 * i, _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8));
    _mm512_store_si512(pairs + 32 * i + 16, _mm512_srai_epi16(bytes, 8));
  }
  __m512i sum[4] = {};
  for (int i = 0; i < 128; i += 4) {
    for (int j = 0; j < 4; ++j)
      sum[j] = _mm512_dpwssd_epi32(sum[j], _mm512_load_si512(panel.pairs[i + j]), _mm512_set1_epi32(pairs[i + j]));
  }
  return _mm512_add_epi32(_mm512_add_epi32(sum[0], sum[1]), _mm512_add_epi32(sum[2], sum[3]));
}

// Where C is not shown to give 128 F, that by the contract's own steps.
template <class PanelType, class SideType, int kUsed>
[[gnu::noinline]] void repair(const PanelType* panels, const SideType& side, const __m512i (&sum)[2][kUsed],
                              __m512 (&f)[2][kUsed]) noexcept {
  for (int t = 0; t < kUsed; ++t) {
    for (int g = 0; g < 2; ++g) {
      const __m512 norm = _mm512_load_ps(panels[g].norm);
      const auto any_above = [&](float norm_of_token, float limit) {
        return _mm512_cmp_ps_mask(_mm512_mul_ps(norm, _mm512_set1_ps(norm_of_token)), _mm512_set1_ps(limit),
                                  _CMP_GT_OQ) != 0;
      };
      const bool wraps = any_above(side.norm_q[t], kNormsOfQ) || any_above(side.norm_l[t], 2 * kNormsOfL) ||
                         _mm512_cmp_ps_mask(_mm512_abs_ps(f[g][t]), _mm512_set1_ps(kSeen), _CMP_GE_OQ) != 0;
      if (!wraps && !any_above(side.norm_l[t], kNormsOfL)) continue;
      const __m512i refined = dot_plane(panels[g], side.l[t]);
      const __m512i first =
          wraps ? dot_plane(panels[g], side.q[t]) : _mm512_srai_epi32(_mm512_sub_epi32(sum[g][t], refined), 7);
      const __m512 joined =
          _mm512_fmadd_ps(_mm512_set1_ps(0x1p-7f), _mm512_cvtepi32_ps(refined), _mm512_cvtepi32_ps(first));
      f[g][t] = _mm512_mul_ps(joined, _mm512_set1_ps(0x1p7f));
    }
  }
}

template <class Format_>
template <int kUsed>
inline void Words<Format_>::dots(const Panel* panels, const Side& side, __m512 (&f)[2][kUsed]) noexcept {
  __m512i sums[2][kUsed];
  dot_words<Panel, Side, kUsed>(panels, side, sums);
  __m512 largest = _mm512_setzero_ps();
  for (int g = 0; g < 2; ++g) {
    for (int t = 0; t < kUsed; ++t) {
      f[g][t] = _mm512_cvtepi32_ps(sums[g][t]);
      largest = _mm512_range_ps(largest, f[g][t], 0x0B);  // the larger magnitude
    }
  }
  const float norm = panels[0].norm_max > panels[1].norm_max ? panels[0].norm_max : panels[1].norm_max;
  const bool in_range = norm * side.norm_q_max <= kNormsOfQ && norm * side.norm_l_max <= kNormsOfL;
  if (!in_range || _mm512_cmp_ps_mask(largest, _mm512_set1_ps(kSeen), _CMP_GE_OQ) != 0) [[unlikely]]
    repair(panels, side, sums, f);
}

struct KernelOf {
  template <class Format>
  GemmKernel of() const noexcept {
    return walk_kernel<Words<Format>>();
  }
};

}  // namespace

GemmKernel gemm_a256_words_avx512(tensor::DType dtype) noexcept { return with_unpack_a256(dtype, KernelOf{}); }

}  // namespace assay::backend::cpu
