// Matrix-matrix products of the K-quants by AVX2's byte multiplication: vpmaddubsw multiplies unsigned weights with signed activations and adds
// pairs; as many pairs are added as words as cannot overflow, then the sub-block's integer scale widens them to the exact sum of the contract.
#include "backend/cpu/gemm_avx2.h"
#include "backend/cpu/unpack_a256.h"

namespace assay::backend::cpu {
namespace {

// A superblock of 8 rows in the panel: 64 registers of 4 elements of every row, the scales of 16 groups of 16 and the minima as pairs of words,
// d, m.
constexpr int64_t kScales = 64 * 32, kMinima = kScales + 16 * 32, kD = kMinima + 8 * 32, kBlockBytes = kD + 2 * 32;
constexpr int64_t kDwords = 64;  // of a superblock

// Dwords (4 elements) whose products with +-127 can be added as words: two pairs a dword, each in a word of its own.
template <class Format>
constexpr int kDwordsPerSum = [] {
  constexpr int kUnsignedMax = Format::kWeightMax + Format::kOffset - (Format::kOffset > 0 ? 1 : 0);
  int n = Format::kSubBlock / 4;
  while (n * 2 * kUnsignedMax * 127 > 32767) n /= 2;
  return n;
}();
static_assert(kDwordsPerSum<UnpackQ4_K> == 8 && kDwordsPerSum<UnpackQ5_K> == 4 && kDwordsPerSum<UnpackQ6_K> == 2 &&
              kDwordsPerSum<UnpackQ3_K> == 4 && kDwordsPerSum<UnpackQ2_K> == 4);
static_assert(8 * 2 * 15 * 127 <= 32767 && 4 * 2 * 31 * 127 <= 32767 && 2 * 2 * 63 * 127 <= 32767 && 4 * 2 * 7 * 127 <= 32767);
static_assert(int64_t{256} * 127 * 63 * 128 < (int64_t{1} << 31));  // Q6_K before its offset is taken off

int64_t panel_groups(int64_t n_blocks) noexcept {
  const int64_t groups = kPanelBytes / (n_blocks * kBlockBytes) / 4 * 4;  // kGemmRowStep rows at least
  return groups < 4 ? 4 : groups;
}

// Rows past the end repeat the last one; their results are not stored.
template <class Format>
void build_group(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* out) noexcept {
  const int64_t n_blocks = task.k / 256, block_bytes = Format::block_bytes(task);
  const std::byte* p[kRows];
  for (int64_t i = 0; i < kRows; ++i) p[i] = task.weights + smaller(row_begin + i, row_end - 1) * task.row_bytes;
  for (int64_t b = 0; b < n_blocks; ++b, out += kBlockBytes) {
    __m256i minima[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      const SubScales s = Format::sub_scales(Format::open(task, p[i]));
      alignas(32) int16_t scale[16];
      _mm256_store_si256(reinterpret_cast<__m256i*>(scale), s.scale);
      for (int j = 0; j < 16; ++j) {
        const int32_t pair = scale[j] * 0x10000 + static_cast<uint16_t>(scale[j]);
        __builtin_memcpy(out + kScales + 32 * j + 4 * i, &pair, 4);
      }
      minima[i] = s.min;
    }
    store_pairs(minima, out + kMinima);
    for (int half = 0; half < 2; ++half) {
      __m256i w[kRows][4];
      for (int64_t i = 0; i < kRows; ++i) Format::unpack(Format::open(task, p[i]), half, w[i]);
      for (int j = 0; j < 4; ++j) {
        __m256i rows[kRows], dwords[kRows];
        for (int64_t i = 0; i < kRows; ++i) rows[i] = w[i][j];
        transpose_8(rows, dwords);
        for (int d = 0; d < 8; ++d) _mm256_store_si256(reinterpret_cast<__m256i*>(out + 32 * (32 * half + 8 * j + d)), dwords[d]);
      }
    }
    const Scales s = Format::scales(task, p);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD), s.d);
    _mm256_store_ps(reinterpret_cast<float*>(out + kD + 32), s.m);
    for (int64_t i = 0; i < kRows; ++i) p[i] += block_bytes;
  }
}

// The activations of 4 columns (column = token * planes + plane): dwords of 4 elements, and pairs of the sums of 16.
struct Tile {
  const int32_t* x;     // [k / 4][columns]
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
  int32_t* sums = x + task.k / 4 * kColumns;
  for (int64_t j = 0; j < task.k; j += 32) {
    __m256i columns[kColumns];
    for (int column = 0; column < kColumns; ++column) {
      const int8_t* plane = column % kPlanes == 0 ? task.x.q : task.x.l;
      columns[column] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(plane + row[column] * task.k + j));
    }
    interleave_16(columns, x + j / 4 * kColumns);
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

// Columns at a time: with 8 dwords a sum all of them, so that each weight is loaded once; with fewer, two, so that the superblock's sums stay in
// registers beside the sums of words.
template <int kPerSum>
constexpr int kColumnsAtATime = kPerSum == 8 ? 4 : 2;

// Adds one superblock's scaled sums of products. x: [dword][column].
template <int kPerSum>
inline void add_superblock(const std::byte* w0, const std::byte* w1, const int32_t* x, __m256i (&sum)[kColumns][kGroups]) noexcept {
  constexpr int kNow = kColumnsAtATime<kPerSum>;
  for (int64_t begin = 0; begin < kDwords; begin += kPerSum) {
    const __m256i scale0 = load_256(w0, kScales + 32 * (begin / 4)), scale1 = load_256(w1, kScales + 32 * (begin / 4));
    for (int first = 0; first < kColumns; first += kNow) {
      __m256i words[kNow][kGroups];
      for (int i = 0; i < kNow; ++i) words[i][0] = words[i][1] = _mm256_setzero_si256();
      for (int p = 0; p < kPerSum; ++p) {
        const __m256i a = load_256(w0, 32 * (begin + p)), b = load_256(w1, 32 * (begin + p));
        for (int i = 0; i < kNow; ++i) {
          const __m256i v = _mm256_set1_epi32(x[kColumns * (begin + p) + first + i]);
          words[i][0] = _mm256_add_epi16(words[i][0], _mm256_maddubs_epi16(a, v));
          words[i][1] = _mm256_add_epi16(words[i][1], _mm256_maddubs_epi16(b, v));
        }
      }
      for (int i = 0; i < kNow; ++i) {
        sum[first + i][0] = _mm256_add_epi32(sum[first + i][0], _mm256_madd_epi16(words[i][0], scale0));
        sum[first + i][1] = _mm256_add_epi32(sum[first + i][1], _mm256_madd_epi16(words[i][1], scale1));
      }
    }
  }
}

template <int kPlanes>
inline __m256 join(const __m256i (&sum)[kColumns][kGroups], int t, int g) noexcept {
  const __m256 first = _mm256_cvtepi32_ps(sum[t * kPlanes][g]);
  if constexpr (kPlanes == 1) return first;
  return _mm256_fmadd_ps(_mm256_set1_ps(0x1p-7f), _mm256_cvtepi32_ps(sum[t * kPlanes + kPlanes - 1][g]), first);
}

template <class Format, int kPlanes>
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
      // Without a minimum the weights' offset takes its place, and is part of the sum.
      add_pairs(w + kMinima, w + group_bytes + kMinima, tile.sums + 8 * kColumns * b, 8, Format::kHasMin ? minimum : sum);
      add_superblock<kDwordsPerSum<Format>>(w, w + group_bytes, tile.x + kDwords * kColumns * b, sum);
      for (int t = 0; t < kTokens; ++t) {
        for (int g = 0; g < kGroups; ++g) {
          const float* scales = reinterpret_cast<const float*>(w + g * group_bytes + kD);
          const __m256 f = join<kPlanes>(sum, t, g), d = _mm256_load_ps(scales);
          __m256 term;
          if constexpr (Format::kHasMin) {
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
      run_tile<Format, kPlanes>(task, tile, token, groups, row, row_end);
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
  return static_cast<size_t>(panel_groups(n_blocks) * n_blocks * kBlockBytes + (task.k / 4 + task.k / 32) * kColumns * 4);
}

template <class Format>
GemmKernel kernel() noexcept {
  return {&gemm<Format>, &scratch_bytes, kGemmRowStep};
}

}  // namespace

GemmKernel gemm_a256_bytes_avx2(tensor::DType dtype) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q2_K: return kernel<UnpackQ2_K>();
    case DType::Q3_K: return kernel<UnpackQ3_K>();
    case DType::Q4_K: return kernel<UnpackQ4_K>();
    case DType::Q5_K: return kernel<UnpackQ5_K>();
    case DType::Q6_K: return kernel<UnpackQ6_K>();
    default: return {};
  }
}

}  // namespace assay::backend::cpu
