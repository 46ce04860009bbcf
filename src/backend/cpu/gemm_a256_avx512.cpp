// Matrix-matrix products of the formats with superblocks of 256 and activations of one plane, by AVX-512 VNNI. 16 rows are the 16 lanes of a register;
// each vpdpbusd multiplies 4 elements of 16 rows with 4 of one activation column (a token).
//   The sums S of the sub-blocks are multiplied with their integer scales as floats, which is exact while every partial sum stays within
// 2^24 (a window): cheaper than the 32-bit multiplication. Two windows are joined by one float addition, which rounds their exact sum once,
// as the conversion of the integer would. Formats that need more windows multiply as integers.
#include "backend/cpu/superblock_rows_avx512.h"

namespace assay::backend::cpu {
namespace {

constexpr int kColumns = 6;  // of a tile

// A superblock of 16 rows in the panel: weights as bytes without sign, the scales as floats or dwords, the minima as pairs of words, d, m.
template <class Format>
struct Layout {
  static constexpr int kSubs = 256 / Format::kSubBlock, kStored = SuperblockRows<Format>::kStored;
  static constexpr int kWindowFits = (1 << 24) / (Format::kSubBlock * 127 * Format::kWeightMax * Format::kScaleMax);
  static constexpr bool kAsFloats = kWindowFits >= kSubs / 2;
  static constexpr int kWindows = kWindowFits >= kSubs || !kAsFloats ? 1 : 2;
  static constexpr int kWindow = kSubs / kWindows;
  static constexpr int64_t kScales = 256 * kRows;
  static constexpr int64_t kMinima = kScales + kSubs * 64;
  static constexpr int64_t kD = kMinima + (Format::kHasMin ? kSubs / 2 * 64 : 0);
  static constexpr int64_t kBytes = kD + 2 * 64;
};

// Rows of a panel: whole tiles of two groups.
template <class Format>
int64_t panel_rows_of(int64_t n_blocks) noexcept {
  return panel_rows<2 * kRows>(2 * n_blocks * Layout<Format>::kBytes);
}

template <class Format>
inline void put_scale(__m512i scale, std::byte* out) noexcept {
  _mm512_store_si512(out, Layout<Format>::kAsFloats ? _mm512_castps_si512(_mm512_cvtepi32_ps(scale)) : scale);
}

template <class Format>
void put_scales(const SuperblockRows<Format>& rows, std::byte* out) noexcept {
  using L = Layout<Format>;
  __m512i pairs[8];
  rows.transpose_words(rows.scale, pairs);
  for (int p = 0; p < 8; ++p) {
    const __m512i high = _mm512_srai_epi32(pairs[p], 16);
    if constexpr (L::kSubs == 16) {
      put_scale<Format>(_mm512_srai_epi32(_mm512_slli_epi32(pairs[p], 16), 16), out + L::kScales + 128 * p);
      put_scale<Format>(high, out + L::kScales + 128 * p + 64);
    } else {
      put_scale<Format>(high, out + L::kScales + 64 * p);  // both words are the scale of the sub-block
    }
  }
  if constexpr (Format::kHasMin) {
    rows.transpose_words(rows.min, pairs);
    for (int p = 0; p < L::kSubs / 2; ++p) {
      const __m512i minima = L::kSubs == 16 ? pairs[p] : _mm512_mask_blend_epi16(0xAAAAAAAA, pairs[2 * p], pairs[2 * p + 1]);
      _mm512_store_si512(out + L::kMinima + 64 * p, minima);
    }
  }
}

template <class Format>
void build_group(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* out) noexcept {
  using L = Layout<Format>;
  const std::byte* p[kRows];
  rows_of_group<kRows>(task, row_begin, row_end, p);
  for (int64_t b = 0; b < task.k / 256; ++b, out += L::kBytes) {
    const SuperblockRows<Format> rows(task, p, b);
    for (int j = 0; j < 8; ++j) {
      __m512i w[8];
      rows.transpose(j, w);
      for (int i = 0; i < 8; ++i) _mm512_store_si512(out + 512 * j + 64 * i, w[i]);
    }
    put_scales<Format>(rows, out);
    _mm512_store_ps(out + L::kD, _mm512_load_ps(rows.d));
    _mm512_store_ps(out + L::kD + 64, _mm512_load_ps(rows.m));
  }
}

// What a tile needs beyond the panel; a column is a token.
struct Tile {
  const int8_t* q[kColumns];
  const float* d[kColumns];
  // Of every sub-block of a column: where the sums of integers begin (-stored offset * sum of activations), or, where the format has a
  // minimum, pairs of the sums as words.
  const int32_t* start[kColumns];
  int64_t n_blocks;
};

// Sums of 32 groups of 16 activations to the numbers of a tile.
template <class Format>
inline void put_sums(const int16_t* sums, int64_t group, int64_t n_groups, int32_t* out) noexcept {
  using L = Layout<Format>;
  const __mmask32 mask = static_cast<__mmask32>(n_groups - group >= 32 ? 0xFFFFFFFF : (1u << (n_groups - group)) - 1);
  const __m512i words = _mm512_maskz_loadu_epi16(mask, sums + group);
  if constexpr (Format::kHasMin) {
    if constexpr (L::kSubs == 16) {
      _mm512_storeu_si512(out + group / 2, words);
    } else {
      const __m512i sums_32 = _mm512_madd_epi16(words, _mm512_set1_epi16(1));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + group / 4), _mm512_cvtepi32_epi16(sums_32));
    }
  } else if constexpr (L::kSubs == 16) {
    const __m512i factor = _mm512_set1_epi32(-L::kStored);
    _mm512_storeu_si512(out + group, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(_mm512_castsi512_si256(words)), factor));
    _mm512_storeu_si512(out + group + 16, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(words, 1)), factor));
  } else {
    _mm512_storeu_si512(out + group / 2, _mm512_madd_epi16(words, _mm512_set1_epi16(-L::kStored)));
  }
}

int64_t sums_stride(int64_t k) noexcept { return (k / 16 + 31) / 32 * 32; }  // dwords of a column, for any layout

template <class Format, int kTokens>
Tile make_tile(const LinearTask& task, int64_t token, std::byte* scratch) noexcept {
  Tile tile;
  tile.n_blocks = task.k / 256;
  const int64_t n_groups = task.k / 16;
  for (int t = 0; t < kTokens; ++t) {
    const int64_t row = smaller(token + t, task.n_tokens - 1);
    tile.d[t] = task.x.d + row * tile.n_blocks;
    tile.q[t] = task.x.q + row * task.k;
    int32_t* start = reinterpret_cast<int32_t*>(scratch) + t * sums_stride(task.k);
    tile.start[t] = start;
    const int16_t* sums = task.x.q_sums + row * n_groups;
    for (int64_t group = 0; group < n_groups; group += 32) put_sums<Format>(sums, group, n_groups, start);
  }
  return tile;
}

// The sums of one sub-block, for every column and group of rows.
template <class Format, int kUsed, int kGroups>
inline void dot_sub_block(const Tile& tile, int64_t b, int sub, const std::byte* const* panel, __m512i (&sum)[kUsed][kGroups]) noexcept {
  using L = Layout<Format>;
  for (int column = 0; column < kUsed; ++column) {
    for (int g = 0; g < kGroups; ++g) {
      sum[column][g] = Format::kHasMin ? _mm512_setzero_si512() : _mm512_set1_epi32(tile.start[column][b * L::kSubs + sub]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < Format::kSubBlock / 4; ++j) {
    __m512i w[kGroups];
    for (int g = 0; g < kGroups; ++g) w[g] = _mm512_load_si512(panel[g] + sub * (Format::kSubBlock * kRows) + 64 * j);
    for (int column = 0; column < kUsed; ++column) {
      const __m512i x = broadcast_4(tile.q[column] + 256 * b + sub * Format::kSubBlock + 4 * j);
      for (int g = 0; g < kGroups; ++g) sum[column][g] = _mm512_dpbusd_epi32(sum[column][g], w[g], x);
    }
  }
}

// I of one superblock as float(I), for every column and group of rows.
template <class Format, int kUsed, int kGroups>
inline void dot_block(const Tile& tile, int64_t b, const std::byte* const* panel, __m512 (&f)[kUsed][kGroups]) noexcept {
  using L = Layout<Format>;
  __m512i total[kUsed][kGroups];
  __m512 first[kUsed][kGroups];
  for (int window = 0; window < L::kWindows; ++window) {
    for (int column = 0; column < kUsed; ++column) {
      for (int g = 0; g < kGroups; ++g) {
        f[column][g] = _mm512_setzero_ps();
        total[column][g] = _mm512_setzero_si512();
      }
    }
    for (int sub = window * L::kWindow; sub < (window + 1) * L::kWindow; ++sub) {
      __m512i sum[kUsed][kGroups];
      dot_sub_block<Format, kUsed, kGroups>(tile, b, sub, panel, sum);
      for (int g = 0; g < kGroups; ++g) {
        const __m512i scale = _mm512_load_si512(panel[g] + L::kScales + 64 * sub);
        for (int column = 0; column < kUsed; ++column) {
          if constexpr (L::kAsFloats) {
            f[column][g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[column][g]), _mm512_castsi512_ps(scale), f[column][g]);
          } else {
            total[column][g] = _mm512_add_epi32(total[column][g], _mm512_mullo_epi32(sum[column][g], scale));
          }
        }
      }
    }
    for (int column = 0; column < kUsed; ++column) {
      for (int g = 0; g < kGroups; ++g) {
        if (!L::kAsFloats) f[column][g] = _mm512_cvtepi32_ps(total[column][g]);
        if (L::kWindows == 2 && window == 0) first[column][g] = f[column][g];
        if (L::kWindows == 2 && window == 1) f[column][g] = _mm512_add_ps(first[column][g], f[column][g]);
      }
    }
  }
}

// M of one superblock as float(M).
template <class Format>
inline __m512 dot_minima(const Tile& tile, int64_t b, int column, const std::byte* panel) noexcept {
  using L = Layout<Format>;
  __m512i sum = _mm512_setzero_si512();
  for (int p = 0; p < L::kSubs / 2; ++p) {
    const __m512i x = _mm512_set1_epi32(tile.start[column][b * (L::kSubs / 2) + p]);
    sum = _mm512_dpwssd_epi32(sum, _mm512_load_si512(panel + L::kMinima + 64 * p), x);
  }
  return _mm512_cvtepi32_ps(sum);
}

template <class Format, int kTokens, int kGroups>
void run_tile(const LinearTask& task, const Tile& tile, int64_t token, const std::byte* panel, int64_t row, int64_t row_end) noexcept {
  using L = Layout<Format>;
  __m512 chunks[8][kTokens][kGroups];
  for (int64_t i = 0; i < 8; ++i) {
    auto& c = chunks[i];
    for (int t = 0; t < kTokens; ++t) {
      for (int g = 0; g < kGroups; ++g) c[t][g] = _mm512_setzero_ps();
    }
    for (int64_t b = i * tile.n_blocks / 8; b < (i + 1) * tile.n_blocks / 8; ++b) {
      const std::byte* groups[kGroups];
      for (int g = 0; g < kGroups; ++g) groups[g] = panel + (g * tile.n_blocks + b) * L::kBytes;
      __m512 f[kTokens][kGroups];
      dot_block<Format, kTokens, kGroups>(tile, b, groups, f);
      for (int t = 0; t < kTokens; ++t) {
        const __m512 scale = _mm512_set1_ps(tile.d[t][b]);
        for (int g = 0; g < kGroups; ++g) {
          const __m512 d = _mm512_load_ps(groups[g] + L::kD);
          __m512 term = f[t][g];
          if constexpr (Format::kHasMin) {
            const __m512 m = _mm512_load_ps(groups[g] + L::kD + 64);
            term = _mm512_fmadd_ps(d, term, _mm512_mul_ps(m, dot_minima<Format>(tile, b, t, groups[g])));
          } else {
            term = _mm512_mul_ps(d, term);
          }
          c[t][g] = _mm512_fmadd_ps(scale, term, c[t][g]);
        }
      }
    }
  }
  store_tile<kTokens, kGroups>(task, chunks, token, row, row_end);
}

template <class Format, int kTokens>
void run_tokens(const LinearTask& task, int64_t token, const std::byte* panel, int64_t row_begin, int64_t row_end,
                std::byte* scratch) noexcept {
  const Tile tile = make_tile<Format, kTokens>(task, token, scratch);
  int64_t row = row_begin;
  for (; row + kRows < row_end; row += 2 * kRows, panel += 2 * tile.n_blocks * Layout<Format>::kBytes) {
    run_tile<Format, kTokens, 2>(task, tile, token, panel, row, row_end);
  }
  if (row < row_end) run_tile<Format, kTokens, 1>(task, tile, token, panel, row, row_end);
}

template <class Format>
void gemm(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  const int64_t n_blocks = task.k / 256, group_bytes = n_blocks * Layout<Format>::kBytes, rows = panel_rows_of<Format>(n_blocks);
  std::byte* tile_scratch = scratch + rows / kRows * group_bytes;
  const auto build = [&](int64_t row, int64_t end, int64_t group) { build_group<Format>(task, row, end, scratch + group * group_bytes); };
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t token = 0; token < task.n_tokens; token += kColumns) {
      run_tokens<Format, kColumns>(task, token, scratch, begin, end, tile_scratch);
    }
  };
  walk_panels<kRows>(row_begin, row_end, rows, build, run);
}

template <class Format>
size_t scratch_bytes(const LinearTask& task) noexcept {
  const int64_t n_blocks = task.k / 256;
  const int64_t panel = panel_rows_of<Format>(n_blocks) / kRows * n_blocks * Layout<Format>::kBytes;
  return static_cast<size_t>(panel + kColumns * sums_stride(task.k) * 4);
}

struct KernelOf {
  template <class Format>
  GemmKernel of() const noexcept {
    return {&gemm<Format>, &scratch_bytes<Format>, kGemmRowStep};
  }
};

}  // namespace

GemmKernel gemm_a256_avx512(tensor::DType dtype) noexcept { return with_unpack_a256(dtype, KernelOf{}); }

}  // namespace assay::backend::cpu
