// Matrix-matrix products of the formats with blocks of 32 by AVX-512 VNNI. 16 rows are the 16 lanes of a register; each
// vpdpbusd multiplies 4 elements of 16 rows with 4 of one activation column (a plane of a token).
//   A sum of integers I with |I| < 2^22 that begins at the bits of 3 * 2^22 is the float 3 * 2^22 + I without a conversion, and d * I rounded once is
// fma(d, 3 * 2^22 + I, -d * 3 * 2^22), whose last product is exact for a d of half precision: an instruction less for
// every block, row and token. An infinite d would give a NaN; panels with one take the long way.
#include <type_traits>

#include "backend/cpu/gemm/gemm_avx512.h"
#include "backend/cpu/gemm/panel_a32.h"

namespace assay::backend::cpu {
namespace {

constexpr int kColumnsMax = 8;
constexpr int32_t kFloatBits = 0x4B400000;  // of 3 * 2^22
constexpr float kFloatStart = 0x1.8p23f;

// How a block's term comes from its sum: with a minimum; by conversion; by the multiply-add above, or by conversion of
// a sum meant for it.
enum class Terms { with_minimum, converted, folded, unfolded };
template <class Format, int kPlanes>
constexpr Terms kTerms = Format::kHasMin                                         ? Terms::with_minimum
                         : kPlanes == 1 && std::is_base_of_v<HalfScales, Format> ? Terms::folded
                                                                                 : Terms::converted;
static_assert(32 * 128 * 127 < 1 << 22);
// A block of 16 rows in the panel: 8 registers of weights, then d, then m or -d * kFloatStart.
constexpr int64_t kWeightBytes = 8 * 64, kBlockBytes = kWeightBytes + 2 * 64;

int64_t padded(int64_t n_blocks) noexcept { return (n_blocks + 15) / 16 * 16; }

// Rows of a panel: whole tiles of two groups.
int64_t panel_rows_of(int64_t n_blocks) noexcept { return panel_rows<2 * kRows>(2 * n_blocks * kBlockBytes); }

// Whether every d is finite.
template <class Format>
bool build_group(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* out) noexcept {
  __m512 sum = _mm512_setzero_ps();  // of 0 * d
  const int64_t n_blocks = task.k / 32;
  const std::byte* rows[kRows];
  rows_of_group<kRows>(task, row_begin, row_end, rows);
  for (int64_t b = 0; b < n_blocks; ++b, out += kBlockBytes) {
    __m512i w[8];
    transpose_16([&](int i) { return Format::weights(rows[i] + b * Format::kBlockBytes); }, w);
    for (int j = 0; j < 8; ++j) _mm512_store_si512(out + 64 * j, w[j]);
    alignas(64) std::byte heads[kRows * 4];
    for (int64_t i = 0; i < kRows; ++i) __builtin_memcpy(heads + 4 * i, rows[i] + b * Format::kBlockBytes, 4);
    float* d = reinterpret_cast<float*>(out + kWeightBytes);
    for (int64_t i = 0; i < kRows; i += 8) {
      _mm256_store_ps(d + i, Format::d(heads + 4 * i, 4));
      if constexpr (Format::kHasMin) _mm256_store_ps(d + kRows + i, Format::m(heads + 4 * i, 4));
    }
    if constexpr (kTerms<Format, 1> == Terms::folded) {
      const __m512 of_rows = _mm512_load_ps(d);
      sum = _mm512_fmadd_ps(of_rows, _mm512_setzero_ps(), sum);
      _mm512_store_ps(d + kRows, _mm512_mul_ps(of_rows, _mm512_set1_ps(-kFloatStart)));
    }
  }
  return _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q) == 0;
}

// What a tile needs beyond the panel, for kTokens tokens; column = token * planes + plane.
struct Tile {
  const int8_t* q[kColumnsMax];
  const float* d[kColumnsMax];
  const int32_t* start;  // [columns][padded blocks]: -offset * sum, where the sums of integers begin
  const float* g;        // [tokens][padded blocks]: G of the contract, where the format has a minimum
  int64_t n_blocks;
};

template <class Format, int kPlanes, int kTokens>
Tile make_tile(const LinearTask& task, int64_t token, std::byte* scratch) noexcept {
  const int64_t n_blocks = task.k / 32, stride = padded(n_blocks);
  Tile tile;
  tile.n_blocks = n_blocks;
  int32_t* start = reinterpret_cast<int32_t*>(scratch);
  float* g = reinterpret_cast<float*>(scratch + kColumnsMax * stride * 4);
  tile.start = start;
  tile.g = g;
  for (int t = 0; t < kTokens; ++t) {
    const int64_t row = smaller(token + t, task.n_tokens - 1);
    tile.d[t] = task.x.d + row * n_blocks;
    const int column = t * kPlanes;
    tile.q[column] = task.x.q + row * task.k;
    if constexpr (kPlanes == 2) tile.q[column + 1] = task.x.l + row * task.k;
    for (int64_t b = 0; b < n_blocks; b += 16) {
      const __mmask16 mask = static_cast<__mmask16>(n_blocks - b >= 16 ? 0xFFFF : (1 << (n_blocks - b)) - 1);
      const auto sums = [&](const int16_t* of_plane) {
        return _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(mask, of_plane + row * n_blocks + b));
      };
      const __m512i first = sums(task.x.q_sums);
      __m512i refined = _mm512_setzero_si512();
      if constexpr (kPlanes == 2) refined = sums(task.x.l_sums);
      if constexpr (Format::kHasMin) {
        const __m512 f = _mm512_cvtepi32_ps(first);
        _mm512_store_ps(g + t * stride + b,
                        kPlanes == 2 ? _mm512_fmadd_ps(_mm512_set1_ps(0x1p-7f), _mm512_cvtepi32_ps(refined), f) : f);
      } else {
        const __m512i factor = _mm512_set1_epi32(-Format::kOffset);
        const __m512i from = _mm512_set1_epi32(kTerms<Format, kPlanes> == Terms::folded ? kFloatBits : 0);
        _mm512_store_si512(start + column * stride + b, _mm512_add_epi32(_mm512_mullo_epi32(first, factor), from));
        if constexpr (kPlanes == 2)
          _mm512_store_si512(start + (column + 1) * stride + b, _mm512_mullo_epi32(refined, factor));
      }
    }
  }
  return tile;
}

// Terms t of one block for kGroups groups of rows and the chains c.
template <Terms kOf, int kPlanes, int kTokens, int kGroups>
inline void add_block(const Tile& tile, int64_t b, const std::byte* const* panel,
                      __m512 (&c)[kTokens][kGroups]) noexcept {
  constexpr int kColumns = kPlanes * kTokens;
  const int64_t stride = padded(tile.n_blocks);
  __m512i sum[kColumns][kGroups];
  for (int column = 0; column < kColumns; ++column) {
    for (int g = 0; g < kGroups; ++g) {
      sum[column][g] =
          kOf == Terms::with_minimum ? _mm512_setzero_si512() : _mm512_set1_epi32(tile.start[column * stride + b]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    __m512i w[kGroups];
    for (int g = 0; g < kGroups; ++g) w[g] = _mm512_load_si512(panel[g] + b * kBlockBytes + 64 * j);
    for (int column = 0; column < kColumns; ++column) {
      const __m512i x = broadcast_4(tile.q[column] + 32 * b + 4 * j);
      for (int g = 0; g < kGroups; ++g) sum[column][g] = _mm512_dpbusd_epi32(sum[column][g], w[g], x);
    }
  }
  for (int g = 0; g < kGroups; ++g) {
    const float* const scales = reinterpret_cast<const float*>(panel[g] + b * kBlockBytes + kWeightBytes);
    const __m512 d = _mm512_load_ps(scales);
    for (int t = 0; t < kTokens; ++t) {
      __m512i whole = sum[t * kPlanes][g];
      if constexpr (kOf == Terms::unfolded) whole = _mm512_sub_epi32(whole, _mm512_set1_epi32(kFloatBits));
      __m512 f = kOf == Terms::folded ? _mm512_castsi512_ps(whole) : _mm512_cvtepi32_ps(whole);
      if constexpr (kPlanes == 2)
        f = _mm512_fmadd_ps(_mm512_set1_ps(0x1p-7f), _mm512_cvtepi32_ps(sum[t * kPlanes + 1][g]), f);
      __m512 term;
      if constexpr (kOf == Terms::with_minimum) {
        term = _mm512_fmadd_ps(d, f,
                               _mm512_mul_ps(_mm512_load_ps(scales + kRows), _mm512_set1_ps(tile.g[t * stride + b])));
      } else if constexpr (kOf == Terms::folded) {
        term = _mm512_fmadd_ps(d, f, _mm512_load_ps(scales + kRows));
      } else {
        term = _mm512_mul_ps(d, f);
      }
      c[t][g] = _mm512_fmadd_ps(_mm512_set1_ps(tile.d[t][b]), term, c[t][g]);
    }
  }
}

// kTokens tokens against kGroups * 16 rows: the 8 chunks and the tree of the contract, then the bias.
template <Terms kOf, int kPlanes, int kTokens, int kGroups>
void run_tile(const LinearTask& task, const Tile& tile, int64_t token, const std::byte* panel, int64_t row,
              int64_t row_end) noexcept {
  const std::byte* groups[kGroups];
  for (int g = 0; g < kGroups; ++g) groups[g] = panel + g * tile.n_blocks * kBlockBytes;
  __m512 chunks[8][kTokens][kGroups];
  for (int64_t i = 0; i < 8; ++i) {
    __m512 c[kTokens][kGroups];
    for (int t = 0; t < kTokens; ++t) {
      for (int g = 0; g < kGroups; ++g) c[t][g] = _mm512_setzero_ps();
    }
    const int64_t end = (i + 1) * tile.n_blocks / 8;
    for (int64_t b = i * tile.n_blocks / 8; b < end; ++b) add_block<kOf, kPlanes, kTokens, kGroups>(tile, b, groups, c);
    for (int t = 0; t < kTokens; ++t) {
      for (int g = 0; g < kGroups; ++g) chunks[i][t][g] = c[t][g];
    }
  }
  store_tile<kTokens, kGroups>(task, chunks, token, row, row_end);
}

template <class Format, Terms kOf, int kPlanes, int kTokens>
void run_tokens(const LinearTask& task, int64_t token, const std::byte* panel, int64_t row_begin, int64_t row_end,
                std::byte* scratch) noexcept {
  const Tile tile = make_tile<Format, kPlanes, kTokens>(task, token, scratch);
  int64_t row = row_begin;
  for (; row + kRows < row_end; row += 2 * kRows, panel += 2 * tile.n_blocks * kBlockBytes) {
    run_tile<kOf, kPlanes, kTokens, 2>(task, tile, token, panel, row, row_end);
  }
  if (row < row_end) run_tile<kOf, kPlanes, kTokens, 1>(task, tile, token, panel, row, row_end);
}

template <class Format>
void run_two_planes(const LinearTask& task, const std::byte* panel, int64_t row_begin, int64_t row_end,
                    std::byte* scratch) noexcept {
  constexpr Terms kOf = kTerms<Format, 2>;
  for (int64_t token = 0; token < task.n_tokens; token += 4) {
    if (task.n_tokens - token > 2) run_tokens<Format, kOf, 2, 4>(task, token, panel, row_begin, row_end, scratch);
    if (task.n_tokens - token <= 2) run_tokens<Format, kOf, 2, 2>(task, token, panel, row_begin, row_end, scratch);
  }
}

template <class Format, Terms kOf>
void run_one_plane(const LinearTask& task, const std::byte* panel, int64_t row_begin, int64_t row_end,
                   std::byte* scratch) noexcept {
  for (int64_t token = 0; token < task.n_tokens;) {
    const int64_t left = task.n_tokens - token;
    if (left > 4 && left != 8) {
      run_tokens<Format, kOf, 1, 6>(task, token, panel, row_begin, row_end, scratch);
      token += 6;
    } else {
      run_tokens<Format, kOf, 1, 4>(task, token, panel, row_begin, row_end, scratch);
      token += 4;
    }
  }
}

// All tokens against the panel of rows [row_begin, row_end).
template <class Format>
void run_panel(const LinearTask& task, bool finite, const std::byte* panel, int64_t row_begin, int64_t row_end,
               std::byte* scratch) noexcept {
  constexpr Terms kOf = kTerms<Format, 1>;
  if (task.x.planes == 2) return run_two_planes<Format>(task, panel, row_begin, row_end, scratch);
  if constexpr (kOf == Terms::folded) {
    if (!finite) return run_one_plane<Format, Terms::unfolded>(task, panel, row_begin, row_end, scratch);
  }
  run_one_plane<Format, kOf>(task, panel, row_begin, row_end, scratch);
}

template <class Format>
void gemm(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  const int64_t n_blocks = task.k / 32, group_bytes = n_blocks * kBlockBytes, rows = panel_rows_of(n_blocks);
  bool finite = true;  // the panel's d
  const auto build = [&](int64_t row, int64_t end, int64_t group) {
    finite = build_group<Format>(task, row, end, scratch + group * group_bytes) && (finite || group == 0);
  };
  const auto run = [&](int64_t begin, int64_t end) {
    run_panel<Format>(task, finite, scratch, begin, end, scratch + rows / kRows * group_bytes);
  };
  walk_panels<kRows>(row_begin, row_end, rows, build, run);
}

size_t scratch_bytes(const LinearTask& task) noexcept {
  const int64_t n_blocks = task.k / 32;
  return static_cast<size_t>(panel_rows_of(n_blocks) / kRows * n_blocks * kBlockBytes +
                             2 * kColumnsMax * padded(n_blocks) * 4);
}

struct KernelOf {
  template <class Format>
  GemmKernel of() const noexcept {
    return {&gemm<Format>, &scratch_bytes, kGemmRowStep};
  }
};

}  // namespace

GemmKernel gemm_a32_avx512(tensor::DType dtype) noexcept { return with_rows_a32(dtype, KernelOf{}); }

}  // namespace assay::backend::cpu
