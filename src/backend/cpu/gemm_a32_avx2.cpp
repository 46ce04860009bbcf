// Matrix-matrix products of the formats with blocks of 32 by AVX2. Two planes are one integer of 15 bits here: 128 * I_q + I_l is exact, and so are
// float(I_q) and float(I_l) of the contract, hence F = float(128 * I_q + I_l) / 128.
#include "backend/cpu/gemm_avx2.h"
#include "backend/cpu/panel_a32.h"

namespace assay::backend::cpu {
namespace {

static_assert(int64_t{32} * 128 * (128 * 127 + 64) < (int64_t{1} << 31) && 32 * 128 * 127 < 1 << 24);

constexpr int kTokens = kColumns;
// A block of 8 rows in the panel: 16 registers of pairs, then d, then m.
constexpr int64_t kWeightBytes = 16 * 32, kBlockBytes = kWeightBytes + 2 * 32;

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
    store_pairs(words[0], out);
    store_pairs(words[1], out + 8 * 32);
    _mm256_store_ps(reinterpret_cast<float*>(out + kWeightBytes), Format::d(heads, 4));
    if constexpr (Format::kHasMin) _mm256_store_ps(reinterpret_cast<float*>(out + kWeightBytes + 32), Format::m(heads, 4));
  }
}

// The activations of 4 tokens: pairs of words, G of the contract, d.
struct Tile {
  const int32_t* x;  // [k / 2][tokens]
  const float* g;    // [blocks][tokens]
  const float* d[kTokens];
  int64_t n_blocks;
};

__m256i widen(const int8_t* p) noexcept { return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

Tile make_tile(const LinearTask& task, int64_t token, std::byte* scratch) noexcept {
  const int64_t n_blocks = task.k / 32;
  const bool two = task.x.planes == 2;
  Tile tile;
  tile.n_blocks = n_blocks;
  int64_t row[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    row[t] = smaller(token + t, task.n_tokens - 1);
    tile.d[t] = task.x.d + row[t] * n_blocks;
  }
  int32_t* x = reinterpret_cast<int32_t*>(scratch);
  for (int64_t j = 0; j < task.k; j += 16) {
    __m256i columns[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      columns[t] = widen(task.x.q + row[t] * task.k + j);
      if (two) columns[t] = _mm256_add_epi16(_mm256_slli_epi16(columns[t], 7), widen(task.x.l + row[t] * task.k + j));
    }
    interleave_16(columns, x + j / 2 * kColumns);
  }
  float* g = reinterpret_cast<float*>(x + task.k / 2 * kColumns);
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (int t = 0; t < kTokens; ++t) {
      int sum = task.x.q_sums[row[t] * n_blocks + b];
      if (two) sum = 128 * sum + task.x.l_sums[row[t] * n_blocks + b];  // exact, as the sums of the weights are
      g[b * kTokens + t] = two ? static_cast<float>(sum) * 0x1p-7f : static_cast<float>(sum);
    }
  }
  tile.x = x;
  tile.g = g;
  return tile;
}

template <bool kHasMin>
void run_tile(const LinearTask& task, const Tile& tile, int64_t token, const std::byte* panel, int64_t row, int64_t row_end) noexcept {
  const __m256 unit = _mm256_set1_ps(task.x.planes == 2 ? 0x1p-7f : 1.0f);
  const int64_t group_bytes = tile.n_blocks * kBlockBytes;
  __m256 chunks[8][kTokens][kGroups];
  for (int64_t i = 0; i < 8; ++i) {
    auto& c = chunks[i];
    for (int t = 0; t < kTokens; ++t) c[t][0] = c[t][1] = _mm256_setzero_ps();
    for (int64_t b = i * tile.n_blocks / 8; b < (i + 1) * tile.n_blocks / 8; ++b) {
      const std::byte* w = panel + b * kBlockBytes;
      __m256i sum[kColumns][kGroups];
      for (int t = 0; t < kTokens; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
      add_pairs(w, w + group_bytes, tile.x + 16 * kColumns * b, 16, sum);
      for (int t = 0; t < kTokens; ++t) {
        for (int g = 0; g < kGroups; ++g) {
          const float* scales = reinterpret_cast<const float*>(w + g * group_bytes + kWeightBytes);
          const __m256 f = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[t][g]), unit), d = _mm256_load_ps(scales);
          __m256 term;
          if constexpr (kHasMin) {
            term = _mm256_fmadd_ps(d, f, _mm256_mul_ps(_mm256_load_ps(scales + kRows), _mm256_set1_ps(tile.g[b * kTokens + t])));
          } else {
            term = _mm256_mul_ps(d, f);
          }
          c[t][g] = _mm256_fmadd_ps(_mm256_set1_ps(tile.d[t][b]), term, c[t][g]);
        }
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
      const Tile tile = make_tile(task, token, tile_scratch);
      for (int64_t row = begin; row < end; row += kGroups * kRows) {
        run_tile<Format::kHasMin>(task, tile, token, scratch + (row - begin) / kRows * group_bytes, row, end);
      }
    }
  }
}

size_t scratch_bytes(const LinearTask& task) noexcept {
  const int64_t n_blocks = task.k / 32;
  return static_cast<size_t>(panel_groups(n_blocks) * n_blocks * kBlockBytes + task.k / 2 * kColumns * 4 + n_blocks * kTokens * 4);
}

template <class Format>
GemmKernel kernel() noexcept {
  return {&gemm<Format>, &scratch_bytes, kGemmRowStep};
}

}  // namespace

GemmKernel gemm_a32_avx2(tensor::DType dtype) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_0: return kernel<RowsQ4_0>();
    case DType::Q4_1: return kernel<RowsQ4_1>();
    case DType::Q5_0: return kernel<RowsQ5_0>();
    case DType::Q5_1: return kernel<RowsQ5_1>();
    case DType::Q8_0: return kernel<RowsQ8_0>();
    case DType::IQ4_NL: return kernel<RowsIQ4_NL>();
    case DType::MXFP4: return kernel<RowsMXFP4>();
    default: return {};
  }
}

}  // namespace assay::backend::cpu
