// Matrix-matrix products of the formats with superblocks of 256 by AVX2 whose weights are signed: the integer scales are multiplied into the weights once (13 bits), so that a
// superblock is one exact integer sum.
#include "backend/cpu/gemm_avx2.h"
#include "backend/cpu/unpack_a256.h"

namespace assay::backend::cpu {
namespace {

// A superblock of 8 rows in the panel: 128 registers of pairs, the minima as 8 registers of pairs, d, m.
constexpr int64_t kMinima = 128 * 32, kD = kMinima + 8 * 32, kBlockBytes = kD + 2 * 32;
static_assert(int64_t{256} * 127 * 4096 < (int64_t{1} << 31));

int64_t panel_groups(int64_t n_blocks) noexcept {
  const int64_t groups = kPanelBytes / (n_blocks * kBlockBytes) / 4 * 4;  // kGemmRowStep rows at least
  return groups < 4 ? 4 : groups;
}

// The 256 weights of one superblock times their integer scales, as words.
template <class Format>
inline SubScales scaled_words(const LinearTask& task, const std::byte* p, __m256i* words) noexcept {
  static_assert(Format::kWeightMax * Format::kScaleMax <= 4096);
  const auto block = Format::open(task, p);
  const SubScales s = Format::sub_scales(block);
  alignas(32) int16_t scale[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(scale), s.scale);
  for (int half = 0; half < 2; ++half) {
    __m256i w[4];
    Format::unpack(block, half, w);
    for (int j = 0; j < 4; ++j) {
      const __m256i centred = _mm256_sub_epi8(w[j], _mm256_set1_epi8(static_cast<char>(Format::kOffset)));
      const int at = 8 * half + 2 * j;
      words[at] = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(centred)), _mm256_set1_epi16(scale[at]));
      words[at + 1] = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(centred, 1)), _mm256_set1_epi16(scale[at + 1]));
    }
  }
  return s;
}

// Rows past the end repeat the last one; their results are not stored.
template <class Format>
void build_group(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* out) noexcept {
  const int64_t n_blocks = task.k / 256, block_bytes = Format::block_bytes(task);
  const std::byte* p[kRows];
  for (int64_t i = 0; i < kRows; ++i) p[i] = task.weights + smaller(row_begin + i, row_end - 1) * task.row_bytes;
  for (int64_t b = 0; b < n_blocks; ++b, out += kBlockBytes) {
    __m256i words[16][kRows], minima[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      __m256i of_row[16];
      minima[i] = scaled_words<Format>(task, p[i], of_row).min;
      for (int j = 0; j < 16; ++j) words[j][i] = of_row[j];
    }
    for (int j = 0; j < 16; ++j) store_pairs(words[j], out + 256 * j);
    if constexpr (Format::kHasMin) store_pairs(minima, out + kMinima);
    const Scales s = Format::scales(task, p);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD), s.d);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD + 32), s.m);
    for (int64_t i = 0; i < kRows; ++i) p[i] += block_bytes;
  }
}

// The activations of 4 columns (column = token * planes + plane): pairs of words, and pairs of the sums of 16.
struct Tile {
  const int32_t* x;     // [k / 2][columns]
  const int32_t* sums;  // [k / 32][columns]
  const float* d[kColumns];
  int64_t n_blocks;
};

template <int kPlanes>
Tile make_tile(const LinearTask& task, int64_t token, std::byte* scratch) noexcept {
  Tile tile;
  tile.n_blocks = task.k / 256;
  int64_t row[kColumns];
  for (int column = 0; column < kColumns; ++column) row[column] = smaller(token + column / kPlanes, task.n_tokens - 1);
  for (int t = 0; t < kColumns / kPlanes; ++t) tile.d[t] = task.x.d + row[t * kPlanes] * tile.n_blocks;
  int32_t* x = reinterpret_cast<int32_t*>(scratch);
  int32_t* sums = x + task.k / 2 * kColumns;
  for (int64_t j = 0; j < task.k; j += 16) {
    __m256i columns[kColumns];
    for (int column = 0; column < kColumns; ++column) {
      const int8_t* plane = column % kPlanes == 0 ? task.x.q : task.x.l;
      columns[column] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(plane + row[column] * task.k + j)));
    }
    interleave_16(columns, x + j / 2 * kColumns);
  }
  for (int64_t j = 0; j < task.k / 16; j += 16) {
    __m256i columns[kColumns];
    for (int column = 0; column < kColumns; ++column) {
      const int16_t* of_plane = column % kPlanes == 0 ? task.x.q_sums : task.x.l_sums;
      columns[column] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(of_plane + row[column] * (task.k / 16) + j));
    }
    interleave_16(columns, sums + j / 2 * kColumns);
  }
  tile.x = x;
  tile.sums = sums;
  return tile;
}

template <int kPlanes>
inline __m256 join(const __m256i (&sum)[kColumns][kGroups], int t, int g) noexcept {
  const __m256 first = _mm256_cvtepi32_ps(sum[t * kPlanes][g]);
  if constexpr (kPlanes == 1) return first;
  return _mm256_fmadd_ps(_mm256_set1_ps(0x1p-7f), _mm256_cvtepi32_ps(sum[t * kPlanes + kPlanes - 1][g]), first);
}

template <bool kHasMin, int kPlanes>
void run_tile(const LinearTask& task, const Tile& tile, int64_t token, const std::byte* panel, int64_t row, int64_t row_end) noexcept {
  constexpr int kTokens = kColumns / kPlanes;
  const int64_t group_bytes = tile.n_blocks * kBlockBytes;
  __m256 chunks[8][kTokens][kGroups];
  for (int64_t i = 0; i < 8; ++i) {
    auto& c = chunks[i];
    for (int t = 0; t < kTokens; ++t) c[t][0] = c[t][1] = _mm256_setzero_ps();
    for (int64_t b = i * tile.n_blocks / 8; b < (i + 1) * tile.n_blocks / 8; ++b) {
      const std::byte* w = panel + b * kBlockBytes;
      __m256i sum[kColumns][kGroups], minimum[kColumns][kGroups];
      for (int column = 0; column < kColumns; ++column) {
        for (int g = 0; g < kGroups; ++g) sum[column][g] = minimum[column][g] = _mm256_setzero_si256();
      }
      add_pairs(w, w + group_bytes, tile.x + 128 * kColumns * b, 128, sum);
      if constexpr (kHasMin) add_pairs(w + kMinima, w + group_bytes + kMinima, tile.sums + 8 * kColumns * b, 8, minimum);
      for (int t = 0; t < kTokens; ++t) {
        for (int g = 0; g < kGroups; ++g) {
          const float* scales = reinterpret_cast<const float*>(w + g * group_bytes + kD);
          const __m256 f = join<kPlanes>(sum, t, g), d = _mm256_load_ps(scales);
          __m256 term;
          if constexpr (kHasMin) {
            term = _mm256_fmadd_ps(d, f, _mm256_mul_ps(_mm256_load_ps(scales + kRows), join<kPlanes>(minimum, t, g)));
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

template <class Format, int kPlanes>
void run_panel(const LinearTask& task, const std::byte* panel, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  for (int64_t token = 0; token < task.n_tokens; token += kColumns / kPlanes) {
    const Tile tile = make_tile<kPlanes>(task, token, scratch);
    for (int64_t row = row_begin; row < row_end; row += kGroups * kRows) {
      const std::byte* groups = panel + (row - row_begin) / kRows * tile.n_blocks * kBlockBytes;
      run_tile<Format::kHasMin, kPlanes>(task, tile, token, groups, row, row_end);
    }
  }
}

template <class Format>
void gemm(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  const int64_t n_blocks = task.k / 256, groups = panel_groups(n_blocks), group_bytes = n_blocks * kBlockBytes;
  std::byte* tile_scratch = scratch + groups * group_bytes;
  for (int64_t begin = row_begin; begin < row_end; begin += groups * kRows) {
    const int64_t end = smaller(begin + groups * kRows, row_end);
    for (int64_t row = begin; row < end; row += kRows) {
      build_group<Format>(task, row, end, scratch + (row - begin) / kRows * group_bytes);
    }
    if (task.x.planes == 2) {
      run_panel<Format, 2>(task, scratch, begin, end, tile_scratch);
    } else {
      run_panel<Format, 1>(task, scratch, begin, end, tile_scratch);
    }
  }
}

size_t scratch_bytes(const LinearTask& task) noexcept {
  const int64_t n_blocks = task.k / 256;
  return static_cast<size_t>(panel_groups(n_blocks) * n_blocks * kBlockBytes + (task.k / 2 + task.k / 32) * kColumns * 4);
}

template <class Format>
GemmKernel kernel() noexcept {
  return {&gemm<Format>, &scratch_bytes, kGemmRowStep};
}

}  // namespace

GemmKernel gemm_a256_avx2(tensor::DType dtype) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::IQ4_XS: return kernel<UnpackIQ4_XS>();
    case DType::IQ1_S:
    case DType::IQ2_XXS:
    case DType::IQ2_XS:
    case DType::IQ2_S:
    case DType::IQ3_XXS:
    case DType::IQ3_S:
    case DType::TQ1_0:
    case DType::TQ2_0: return kernel<UnpackAny>();
    default: return gemm_a256_bytes_avx2(dtype);
  }
}

}  // namespace assay::backend::cpu
