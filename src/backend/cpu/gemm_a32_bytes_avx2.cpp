// Matrix-matrix products of the formats with blocks of 32 and small unsigned weights by AVX2's byte multiplication, for activations of one
// plane. (Two planes are one word of 15 bits, which gemm_a32_avx2.cpp multiplies at no cost for the second.)
#include "backend/cpu/gemm_avx2.h"
#include "backend/cpu/panel_a32.h"

namespace assay::backend::cpu {
namespace {

constexpr int kTokens = kColumns;
// A block of 8 rows in the panel: 8 registers of 4 elements of every row, then d, then m.
constexpr int64_t kWeightBytes = 8 * 32, kBlockBytes = kWeightBytes + 2 * 32;

// Dwords (4 elements) whose products with +-127 can be added as words: two pairs a dword, each in a word of its own.
constexpr int dwords_per_sum(int weight_max) { return 8 * 2 * weight_max * 127 <= 32767 ? 8 : 4; }
static_assert(8 * 2 * 15 * 127 <= 32767 && 4 * 2 * 31 * 127 <= 32767);

// Q4_0 and Q4_1 have weights up to 15, MXFP4 up to 24, Q5_0 and Q5_1 up to 31.
template <class Format>
constexpr int kPerSum = dwords_per_sum(31);
template <>
constexpr int kPerSum<RowsQ4_0> = dwords_per_sum(15);
template <>
constexpr int kPerSum<RowsQ4_1> = dwords_per_sum(15);

int64_t panel_groups(int64_t n_blocks) noexcept {
  const int64_t groups = kPanelBytes / (n_blocks * kBlockBytes) / 4 * 4;  // kGemmRowStep rows at least
  return groups < 4 ? 4 : groups;
}

// Rows past the end repeat the last one; their results are not stored.
template <class Format>
void build_group(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* out) noexcept {
  const int64_t n_blocks = task.k / 32;
  const std::byte* p[kRows];
  for (int64_t i = 0; i < kRows; ++i) p[i] = task.weights + smaller(row_begin + i, row_end - 1) * task.row_bytes;
  for (int64_t b = 0; b < n_blocks; ++b, out += kBlockBytes) {
    __m256i rows[kRows], dwords[8];
    alignas(32) std::byte heads[kRows * 4];
    for (int64_t i = 0; i < kRows; ++i) {
      rows[i] = Format::weights(p[i]);
      __builtin_memcpy(heads + 4 * i, p[i], 4);
      p[i] += Format::kBlockBytes;
    }
    transpose_8(rows, dwords);
    for (int d = 0; d < 8; ++d) _mm256_store_si256(reinterpret_cast<__m256i*>(out + 32 * d), dwords[d]);
    _mm256_store_ps(reinterpret_cast<float*>(out + kWeightBytes), Format::d(heads, 4));
    if constexpr (Format::kHasMin) _mm256_store_ps(reinterpret_cast<float*>(out + kWeightBytes + 32), Format::m(heads, 4));
  }
}

// The activations of 4 tokens: dwords of 4 elements, what a block's sum begins with, G of the contract, d.
struct Tile {
  const int32_t* x;      // [k / 4][tokens]
  const int32_t* begin;  // [blocks][tokens]: -kOffset times the sum of the activations
  const float* g;        // [blocks][tokens]
  const float* d[kTokens];
  int64_t n_blocks;
};

Tile make_tile(const LinearTask& task, int64_t token, int offset, std::byte* scratch) noexcept {
  const int64_t n_blocks = task.k / 32;
  Tile tile;
  tile.n_blocks = n_blocks;
  int64_t row[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    row[t] = smaller(token + t, task.n_tokens - 1);
    tile.d[t] = task.x.d + row[t] * n_blocks;
  }
  int32_t* x = reinterpret_cast<int32_t*>(scratch);
  for (int64_t j = 0; j < task.k; j += 32) {
    __m256i columns[kTokens];
    for (int t = 0; t < kTokens; ++t) columns[t] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(task.x.q + row[t] * task.k + j));
    interleave_16(columns, x + j / 4 * kColumns);
  }
  int32_t* begin = x + task.k / 4 * kColumns;
  float* g = reinterpret_cast<float*>(begin + n_blocks * kTokens);
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (int t = 0; t < kTokens; ++t) {
      const int sum = task.x.q_sums[row[t] * n_blocks + b];
      begin[b * kTokens + t] = -offset * sum;
      g[b * kTokens + t] = static_cast<float>(sum);
    }
  }
  tile.x = x;
  tile.begin = begin;
  tile.g = g;
  return tile;
}

// The block's exact sums of 2 tokens and 16 rows: few enough for the registers.
template <int kDwords>
inline void block_sums(const std::byte* w0, const std::byte* w1, const int32_t* x, const int32_t* begin, __m256i (&sum)[2][kGroups]) noexcept {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int t = 0; t < 2; ++t) sum[t][0] = sum[t][1] = _mm256_set1_epi32(begin[t]);
  for (int first = 0; first < 8; first += kDwords) {
    __m256i words[2][kGroups];
    for (int t = 0; t < 2; ++t) words[t][0] = words[t][1] = _mm256_setzero_si256();
    for (int p = first; p < first + kDwords; ++p) {
      const __m256i a = load_256(w0, 32 * p), b = load_256(w1, 32 * p);
      for (int t = 0; t < 2; ++t) {
        const __m256i v = _mm256_set1_epi32(x[kColumns * p + t]);
        words[t][0] = _mm256_add_epi16(words[t][0], _mm256_maddubs_epi16(a, v));
        words[t][1] = _mm256_add_epi16(words[t][1], _mm256_maddubs_epi16(b, v));
      }
    }
    for (int t = 0; t < 2; ++t) {
      for (int g = 0; g < kGroups; ++g) sum[t][g] = _mm256_add_epi32(sum[t][g], _mm256_madd_epi16(words[t][g], ones));
    }
  }
}

template <class Format>
void run_tile(const LinearTask& task, const Tile& tile, int64_t token, const std::byte* panel, int64_t row, int64_t row_end) noexcept {
  const int64_t group_bytes = tile.n_blocks * kBlockBytes;
  __m256 chunks[8][kTokens][kGroups];
  for (int64_t i = 0; i < 8; ++i) {
    for (int pair = 0; pair < kTokens; pair += 2) {
      __m256 c[2][kGroups];
      for (int t = 0; t < 2; ++t) c[t][0] = c[t][1] = _mm256_setzero_ps();
      for (int64_t b = i * tile.n_blocks / 8; b < (i + 1) * tile.n_blocks / 8; ++b) {
        const std::byte* w = panel + b * kBlockBytes;
        __m256i sum[2][kGroups];
        block_sums<kPerSum<Format>>(w, w + group_bytes, tile.x + 8 * kColumns * b + pair, tile.begin + b * kTokens + pair, sum);
        for (int t = 0; t < 2; ++t) {
          for (int g = 0; g < kGroups; ++g) {
            const float* scales = reinterpret_cast<const float*>(w + g * group_bytes + kWeightBytes);
            const __m256 f = _mm256_cvtepi32_ps(sum[t][g]), d = _mm256_load_ps(scales);
            __m256 term;
            if constexpr (Format::kHasMin) {
              const __m256 g_of_token = _mm256_set1_ps(tile.g[b * kTokens + pair + t]);
              term = _mm256_fmadd_ps(d, f, _mm256_mul_ps(_mm256_load_ps(scales + kRows), g_of_token));
            } else {
              term = _mm256_mul_ps(d, f);
            }
            c[t][g] = _mm256_fmadd_ps(_mm256_set1_ps(tile.d[pair + t][b]), term, c[t][g]);
          }
        }
      }
      for (int t = 0; t < 2; ++t) {
        for (int g = 0; g < kGroups; ++g) chunks[i][pair + t][g] = c[t][g];
      }
    }
  }
  store_tile<kTokens>(task, chunks, token, row, row_end);
}

template <class Format>
void gemm(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  const int64_t n_blocks = task.k / 32, groups = panel_groups(n_blocks), group_bytes = n_blocks * kBlockBytes;
  std::byte* tile_scratch = scratch + groups * group_bytes;
  for (int64_t begin = row_begin; begin < row_end; begin += groups * kRows) {
    const int64_t end = smaller(begin + groups * kRows, row_end);
    for (int64_t row = begin; row < end; row += kRows) {
      build_group<Format>(task, row, end, scratch + (row - begin) / kRows * group_bytes);
    }
    for (int64_t token = 0; token < task.n_tokens; token += kTokens) {
      const Tile tile = make_tile(task, token, Format::kOffset, tile_scratch);
      for (int64_t row = begin; row < end; row += kGroups * kRows) {
        run_tile<Format>(task, tile, token, scratch + (row - begin) / kRows * group_bytes, row, end);
      }
    }
  }
}

size_t scratch_bytes(const LinearTask& task) noexcept {
  const int64_t n_blocks = task.k / 32;
  return static_cast<size_t>(panel_groups(n_blocks) * n_blocks * kBlockBytes + task.k / 4 * kColumns * 4 + 2 * n_blocks * kTokens * 4);
}

template <class Format>
GemmKernel kernel() noexcept {
  return {&gemm<Format>, &scratch_bytes, kGemmRowStep};
}

}  // namespace

GemmKernel gemm_a32_bytes_avx2(tensor::DType dtype) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_0: return kernel<RowsQ4_0>();
    case DType::Q4_1: return kernel<RowsQ4_1>();
    case DType::Q5_0: return kernel<RowsQ5_0>();
    case DType::Q5_1: return kernel<RowsQ5_1>();
    case DType::MXFP4: return kernel<RowsMXFP4>();
    default: return {};
  }
}

}  // namespace assay::backend::cpu
