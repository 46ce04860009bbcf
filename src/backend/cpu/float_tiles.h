// Matrix products in floats, shared by the instruction sets: Lanes32 in each of the 8 chunks of contract dot/1, then the tree. Rows of weights are decoded
// to f32 in scratch and run against all tokens. Included by kernel files only; everything here is local to the file that includes it.
// Vector gives a register of kWidth lanes: Reg, zero, load, load_first (n lanes, others 0), fma, keep_first (n lanes of a, else b), fold_to_8.
#pragma once

#include <immintrin.h>

#include "backend/cpu/gemm.h"

namespace assay::backend::cpu {
namespace {

constexpr int kRows = 4;  // of a tile

inline int64_t smaller(int64_t a, int64_t b) noexcept { return a < b ? a : b; }

// The 8 chunks of one output, folded from 32 to 8 lanes each: the rest of the fold (4, 2, 1), then the tree.
inline float fold_chunks(const __m256* c) noexcept {
  __m256 fours[4], twos[2];
  for (int i = 0; i < 4; ++i) {  // chunk i in the lower half, i + 4 in the upper
    fours[i] = _mm256_add_ps(_mm256_permute2f128_ps(c[i], c[i + 4], 0x20), _mm256_permute2f128_ps(c[i], c[i + 4], 0x31));
  }
  for (int i = 0; i < 2; ++i) {
    const __m256 a = fours[2 * i], b = fours[2 * i + 1];
    twos[i] = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
  }
  const __m256 ones = _mm256_add_ps(_mm256_shuffle_ps(twos[0], twos[1], 0x88), _mm256_shuffle_ps(twos[0], twos[1], 0xDD));
  const __m256 pairs = _mm256_hadd_ps(ones, ones);  // the lanes are the chunks 0..7
  const __m256 quads = _mm256_hadd_ps(pairs, pairs);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1)));
}

// One chunk, elements [begin, end), of kTokens x kRows outputs. Lane group by lane group, so that one register of each output is live.
template <class Vector, int kTokens>
inline void run_chunk(const float* const* w, const float* const* x, int64_t begin, int64_t end, __m256 (*out)[kRows][8], int64_t chunk) noexcept {
  using Reg = typename Vector::Reg;
  constexpr int kGroups = 32 / Vector::kWidth;
  Reg groups[kGroups][kTokens][kRows];
  for (int g = 0; g < kGroups; ++g) {
    Reg sum[kTokens][kRows];
    for (int t = 0; t < kTokens; ++t) {
      for (int r = 0; r < kRows; ++r) sum[t][r] = Vector::zero();
    }
    int64_t j = begin + g * Vector::kWidth;
    for (; j + Vector::kWidth <= end; j += 32) {
      Reg weights[kRows];
      for (int r = 0; r < kRows; ++r) weights[r] = Vector::load(w[r] + j);
      for (int t = 0; t < kTokens; ++t) {
        const Reg activation = Vector::load(x[t] + j);
        for (int r = 0; r < kRows; ++r) sum[t][r] = Vector::fma(weights[r], activation, sum[t][r]);
      }
    }
    if (j < end) {  // only where k is no multiple of 32
      for (int t = 0; t < kTokens; ++t) {
        const Reg activation = Vector::load_first(x[t] + j, end - j);
        for (int r = 0; r < kRows; ++r) {
          const Reg next = Vector::fma(Vector::load_first(w[r] + j, end - j), activation, sum[t][r]);
          sum[t][r] = Vector::keep_first(next, sum[t][r], end - j);
        }
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      for (int r = 0; r < kRows; ++r) groups[g][t][r] = sum[t][r];
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRows; ++r) {
      Reg lanes[kGroups];
      for (int g = 0; g < kGroups; ++g) lanes[g] = groups[g][t][r];
      out[t][r][chunk] = Vector::fold_to_8(lanes);
    }
  }
}

// Rows past row_end repeat the last one and tokens past the end likewise; their results are not stored.
template <class Vector, int kTokens>
void run_tile(const LinearTask& task, int64_t token, const float* const* w, int64_t row, int64_t row_end) noexcept {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = task.x_f32.data + smaller(token + t, task.n_tokens - 1) * task.x_f32.stride;
  const int64_t n_blocks = (task.k + 31) / 32;
  __m256 chunks[kTokens][kRows][8];
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t begin = 32 * (i * n_blocks / 8), end = smaller(task.k, 32 * ((i + 1) * n_blocks / 8));
    run_chunk<Vector, kTokens>(w, x, begin, end, chunks, i);
  }
  for (int t = 0; t < kTokens && token + t < task.n_tokens; ++t) {
    float* y = task.y.data + (token + t) * task.y.stride;
    for (int r = 0; r < kRows && row + r < row_end; ++r) {
      const float dot = fold_chunks(chunks[t][r]);
      y[row + r] = task.bias == nullptr ? dot : dot + task.bias[row + r];
    }
  }
}

// Rows decoded together: few for few tokens, so that they stay in the first-level cache; else a panel.
inline int64_t panel_rows(const LinearTask& task) noexcept {
  if (task.n_tokens < 4) return kRows;
  const int64_t rows = kPanelBytes / (task.k * 4) / kRows * kRows;
  return rows < kRows ? kRows : rows;
}

inline int64_t padded(int64_t k) noexcept { return (k + 15) / 16 * 16; }

inline size_t float_scratch_bytes(const LinearTask& task) noexcept {
  const bool in_place = task.format->dtype == tensor::DType::F32;
  return in_place ? 0 : static_cast<size_t>(panel_rows(task) * padded(task.k)) * sizeof(float);
}

// decode(bytes, k, out): a row of the format to floats; null where the file's rows are floats already.
using DecodeRow = void (*)(const LinearTask& task, const std::byte* row, float* out);

template <class Vector, int kTokensMax>
void float_rows(const LinearTask& task, DecodeRow decode, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  const int64_t rows = panel_rows(task), stride = padded(task.k);
  float* panel = reinterpret_cast<float*>(scratch);
  for (int64_t begin = row_begin; begin < row_end; begin += rows) {
    const int64_t end = smaller(begin + rows, row_end);
    if (decode != nullptr) {
      for (int64_t r = begin; r < end; ++r) decode(task, task.weights + r * task.row_bytes, panel + (r - begin) * stride);
    }
    for (int64_t token = 0; token < task.n_tokens;) {
      const int64_t left = task.n_tokens - token;
      for (int64_t row = begin; row < end; row += kRows) {
        const float* w[kRows];
        for (int64_t i = 0; i < kRows; ++i) {
          const int64_t r = smaller(row + i, end - 1);
          w[i] = decode != nullptr ? panel + (r - begin) * stride : reinterpret_cast<const float*>(task.weights + r * task.row_bytes);
        }
        if (left == 1) {
          run_tile<Vector, 1>(task, token, w, row, end);
        } else if (left == 2) {
          run_tile<Vector, 2>(task, token, w, row, end);
        } else {
          run_tile<Vector, kTokensMax>(task, token, w, row, end);
        }
      }
      token += left <= 2 ? left : kTokensMax;
    }
  }
}

constexpr int64_t kPrefetchBytes = 3072;

// Half precision and bfloat16: 8 elements at a time by the processor's own conversion, which is exact.
inline __m256 widen_half(const std::byte* p) noexcept { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline __m256 widen_bf16(const std::byte* p) noexcept {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

template <__m256 (*widen)(const std::byte*)>
void decode_16_bits(const LinearTask& task, const std::byte* row, float* out) {
  int64_t j = 0;
  for (; j + 32 <= task.k; j += 32) {
    _mm_prefetch(reinterpret_cast<const char*>(row + 2 * j + kPrefetchBytes), _MM_HINT_T0);
    for (int64_t i = 0; i < 32; i += 8) _mm256_storeu_ps(out + j + i, widen(row + 2 * (j + i)));
  }
  for (; j < task.k; ++j) task.format->decode(row + 2 * j, out + j);
}

inline void decode_by_format(const LinearTask& task, const std::byte* row, float* out) { quant::decode_row(*task.format, row, task.k, out); }

inline DecodeRow find_decode(tensor::DType dtype) noexcept {
  switch (dtype) {
    case tensor::DType::F32: return nullptr;
    case tensor::DType::F16: return &decode_16_bits<&widen_half>;
    case tensor::DType::BF16: return &decode_16_bits<&widen_bf16>;
    default: return &decode_by_format;
  }
}

}  // namespace
}  // namespace assay::backend::cpu
