// Matrix products in floats, shared by the instruction sets: Lanes32 in each of the 8 chunks of contract dot/1, then the tree. Rows of weights are decoded
// to f32 in scratch and run against all tokens. Included by kernel files only; everything here is local to the file that includes it.
// Vector gives a register of kWidth lanes: Reg, zero, load, load_first (n lanes, others 0), fma, keep_first (n lanes of a, else b), fold_to_8.
#pragma once

#include "backend/cpu/decode_rows.h"
#include "backend/cpu/gemm.h"

namespace assay::backend::cpu {
namespace {

constexpr int kRows = 4;  // of a tile
constexpr int kTokensMax = 6;
constexpr int64_t kPanelRowsMax = 32;

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

// A panel of decoded rows; rows past the end repeat the last one, and their results are not stored.
struct Panel {
  const float* w[kPanelRowsMax];
  int64_t row, row_end;
  __m256* partial;  // [rows / kRows][tokens][kRows][8 chunks]
};

// Tokens past the end repeat the last one; their results are not stored. Chunk by chunk over all rows, so that the activations of a chunk
// stay in the first-level cache.
template <class Vector, int kTokens>
void run_tokens(const LinearTask& task, int64_t token, const Panel& panel) noexcept {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = task.x_f32.data + smaller(token + t, task.n_tokens - 1) * task.x_f32.stride;
  const int64_t n_blocks = (task.k + 31) / 32, rows = panel.row_end - panel.row;
  const auto partial = [&](int64_t r) { return reinterpret_cast<__m256(*)[kRows][8]>(panel.partial + r * kTokens * 8); };
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t begin = 32 * (i * n_blocks / 8), end = smaller(task.k, 32 * ((i + 1) * n_blocks / 8));
    for (int64_t r = 0; r < rows; r += kRows) run_chunk<Vector, kTokens>(panel.w + r, x, begin, end, partial(r), i);
  }
  for (int t = 0; t < kTokens && token + t < task.n_tokens; ++t) {
    float* y = task.y.data + (token + t) * task.y.stride + panel.row;
    for (int64_t r = 0; r < rows; ++r) {
      const float dot = fold_chunks(partial(r / kRows * kRows)[t][r % kRows]);
      y[r] = task.bias == nullptr ? dot : dot + task.bias[panel.row + r];
    }
  }
}

// Rows decoded together: few for few tokens, so that they stay in the first-level cache.
inline int64_t panel_rows(const LinearTask& task) noexcept {
  if (task.n_tokens < 4) return kRows;
  const int64_t rows = kPanelBytes / (task.k * 4) / kRows * kRows;
  return rows < kRows ? kRows : smaller(rows, kPanelRowsMax);
}

inline int64_t padded(int64_t k) noexcept { return (k + 15) / 16 * 16; }

constexpr int64_t kPartialBytes = kPanelRowsMax * kTokensMax * 8 * static_cast<int64_t>(sizeof(__m256));

inline size_t float_scratch_bytes(const LinearTask& task) noexcept {
  const bool in_place = task.format->dtype == tensor::DType::F32;
  return static_cast<size_t>(kPartialBytes + (in_place ? 0 : panel_rows(task) * padded(task.k) * 4));
}

template <class Vector, int kTokens>
void float_rows(const LinearTask& task, DecodeRow decode, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  static_assert(kTokens <= kTokensMax);
  const int64_t rows = panel_rows(task), stride = padded(task.k);
  float* decoded = reinterpret_cast<float*>(scratch + kPartialBytes);
  Panel panel;
  panel.partial = reinterpret_cast<__m256*>(scratch);
  for (int64_t begin = row_begin; begin < row_end; begin += rows) {
    panel.row = begin;
    panel.row_end = smaller(begin + rows, row_end);
    const int64_t n = panel.row_end - begin;
    for (int64_t i = 0; i < n; ++i) {
      const std::byte* row = task.weights + (begin + i) * task.row_bytes;
      if (decode != nullptr) decode(task, row, decoded + i * stride);
      panel.w[i] = decode != nullptr ? decoded + i * stride : reinterpret_cast<const float*>(row);
    }
    for (int64_t i = n; i < (n + kRows - 1) / kRows * kRows; ++i) panel.w[i] = panel.w[n - 1];
    for (int64_t token = 0; token < task.n_tokens;) {
      const int64_t left = task.n_tokens - token;
      if (left == 1) {
        run_tokens<Vector, 1>(task, token, panel);
      } else if (left == 2) {
        run_tokens<Vector, 2>(task, token, panel);
      } else {
        run_tokens<Vector, kTokens>(task, token, panel);
      }
      token += left <= 2 ? left : kTokens;
    }
  }
}

}  // namespace
}  // namespace assay::backend::cpu
