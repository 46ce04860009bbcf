// Matrix products in floats, shared by the instruction sets: Lanes32 in each of the 8 chunks of contract dot/1, then
// the tree. Rows of weights are decoded to f32 in scratch and run against all tokens. Included by kernel files only;
// everything here is local to the file that includes it. Vector gives registers of kWidth lanes: Reg, zero, load,
// load_first (n lanes, others 0), fma, keep_first (n lanes of a, else b), hold (keeps a sum in its register); fold,
// which begins to fold the 32 lanes to a Partial; fold_8, which folds 8 Partials to one number each; kTileTokens, the
// tokens whose sums with kRows rows fit the registers; and kPanelBytes, what decoded rows may take of the second-level
// cache: the more, the fewer times the tokens pass by.
#pragma once

#include "backend/cpu/gemm/gemm_panels.h"
#include "backend/cpu/gemv/floats8.h"

namespace assay::backend::cpu {
namespace {

constexpr int kRows = 4;    // of a tile
constexpr int kTokens = 6;  // that pass over a panel together
constexpr int64_t kPanelRowsMax = 32;

// The sums of the lanes that begin at element `begin`, of kUsed tokens x kRows outputs.
template <class Vector, int kUsed, bool kRagged>
inline void run_lanes(const float* const* w, const float* const* x, int64_t begin, int64_t end,
                      typename Vector::Reg (*out)[kRows]) noexcept {
  using Reg = typename Vector::Reg;
  Reg sum[kUsed][kRows];
  for (int t = 0; t < kUsed; ++t) {
    for (int r = 0; r < kRows; ++r) sum[t][r] = Vector::zero();
  }
  for (int64_t j = begin; j < end; j += 32) {
    const auto load = [&](const float* p) {
      return kRagged ? Vector::load_first(p + j, end - j) : Vector::load(p + j);
    };
    Reg activations[kUsed];
    for (int t = 0; t < kUsed; ++t) activations[t] = load(x[t]);
    for (int r = 0; r < kRows; ++r) {
      const Reg weights = load(w[r]);
      for (int t = 0; t < kUsed; ++t) {
        const Reg next = Vector::fma(weights, activations[t], sum[t][r]);
        sum[t][r] = kRagged ? Vector::keep_first(next, sum[t][r], end - j) : next;
        Vector::hold(sum[t][r]);
      }
    }
  }
  for (int t = 0; t < kUsed; ++t) {
    for (int r = 0; r < kRows; ++r) out[t][r] = sum[t][r];
  }
}

// The same for more tokens than a tile has.
template <class Vector, int kUsed, bool kRagged>
inline void run_tiles(const float* const* w, const float* const* x, int64_t begin, int64_t end,
                      typename Vector::Reg (*out)[kRows]) noexcept {
  if constexpr (kUsed <= Vector::kTileTokens) {
    run_lanes<Vector, kUsed, kRagged>(w, x, begin, end, out);
  } else {
    run_lanes<Vector, Vector::kTileTokens, kRagged>(w, x, begin, end, out);
    run_tiles<Vector, kUsed - Vector::kTileTokens, kRagged>(w, x + Vector::kTileTokens, begin, end,
                                                            out + Vector::kTileTokens);
  }
}

// One chunk, elements [begin, end), of kUsed tokens x kRows outputs: the outputs [token][row] of tokens 2i and 2i + 1
// in the lanes of out[8 i]. kRagged: end - begin is no multiple of 32. One group of lanes runs after the other, so that
// one register of each output is live.
template <class Vector, int kUsed, bool kRagged>
void run_chunk(const float* const* w, const float* const* x, int64_t begin, int64_t end, Floats8* out) noexcept {
  using Reg = typename Vector::Reg;
  constexpr int kGroups = 32 / Vector::kWidth;
  Reg groups[kGroups][kUsed][kRows];
  for (int g = 0; g < kGroups; ++g) run_tiles<Vector, kUsed, kRagged>(w, x, begin + g * Vector::kWidth, end, groups[g]);
  for (int pair = 0; pair < kUsed; pair += 2) {
    typename Vector::Partial partial[2][kRows];
    for (int t = 0; t < 2; ++t) {
      for (int r = 0; r < kRows; ++r) {
        Reg lanes[kGroups];
        for (int g = 0; g < kGroups; ++g) lanes[g] = groups[g][pair + t < kUsed ? pair + t : pair][r];
        partial[t][r] = Vector::fold(lanes);
      }
    }
    out[8 * (pair / 2)] = Vector::fold_8(partial[0]);
  }
}

// The same for up to kTokens tokens; x has kTokens rows, of which those past n_tokens repeat one.
template <class Vector>
inline void run_chunk_of(int64_t n_tokens, const float* const* w, const float* const* x, int64_t begin, int64_t end,
                         Floats8* out) noexcept {
  if ((end - begin) % 32 != 0) {
    run_chunk<Vector, kTokens, true>(w, x, begin, end, out);
  } else if (n_tokens > 4) {
    run_chunk<Vector, kTokens, false>(w, x, begin, end, out);
  } else if (n_tokens > 2) {
    run_chunk<Vector, 4, false>(w, x, begin, end, out);
  } else if (n_tokens == 2) {
    run_chunk<Vector, 2, false>(w, x, begin, end, out);
  } else {
    run_chunk<Vector, 1, false>(w, x, begin, end, out);
  }
}

// A panel of decoded rows; rows past the end repeat the last one, and their results are not stored.
struct Panel {
  const float* w[kPanelRowsMax];
  int64_t row, row_end;
  Floats8* chunks;  // [rows / kRows][token pairs][8]
};

// The tree of the contract for 2 tokens x kRows outputs, then the bias.
inline void store_pair(const LinearTask& task, const Floats8* c, int64_t token, int64_t n_tokens, int64_t row,
                       int64_t row_end) noexcept {
  const auto pair = [&](int i) { return add_8(c[i], c[i + 1]); };
  alignas(32) float sum[2 * kRows];
  store_8(sum, add_8(add_8(pair(0), pair(2)), add_8(pair(4), pair(6))));
  const int64_t rows = smaller(kRows, row_end - row);
  for (int64_t t = 0; t < smaller(2, n_tokens); ++t) {
    float* y = task.y.data + (token + t) * task.y.stride + row;
    for (int64_t r = 0; r < rows; ++r)
      y[r] = task.bias == nullptr ? sum[kRows * t + r] : sum[kRows * t + r] + task.bias[row + r];
  }
}

// n_tokens <= kTokens. Chunk by chunk over all rows, so that the activations of a chunk stay in the first-level cache.
template <class Vector>
void run_tokens(const LinearTask& task, int64_t token, int64_t n_tokens, const Panel& panel) noexcept {
  const float* x[kTokens];
  for (int64_t t = 0; t < kTokens; ++t) x[t] = task.x_f32.data + (token + smaller(t, n_tokens - 1)) * task.x_f32.stride;
  const int64_t n_blocks = (task.k + 31) / 32, rows = panel.row_end - panel.row;
  const auto chunks = [&](int64_t r, int64_t t) { return panel.chunks + (r / kRows * (kTokens / 2) + t / 2) * 8; };
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t begin = 32 * (i * n_blocks / 8), end = smaller(task.k, 32 * ((i + 1) * n_blocks / 8));
    for (int64_t r = 0; r < rows; r += kRows)
      run_chunk_of<Vector>(n_tokens, panel.w + r, x, begin, end, chunks(r, 0) + i);
  }
  for (int64_t r = 0; r < rows; r += kRows) {
    for (int64_t t = 0; t < n_tokens; t += 2)
      store_pair(task, chunks(r, t), token + t, n_tokens - t, panel.row + r, panel.row_end);
  }
}

// Rows decoded together: few for few tokens, so that they stay in the first-level cache.
template <class Vector>
inline int64_t rows_together(const LinearTask& task) noexcept {
  if (task.n_tokens < 4) return kRows;
  const int64_t rows = Vector::kPanelBytes / (task.k * 4) / kRows * kRows;
  return rows < kRows ? kRows : smaller(rows, kPanelRowsMax);
}

// Rows do not begin at the same place of the first-level cache.
inline int64_t padded(int64_t k) noexcept { return (k + 15) / 16 * 16 + 16; }

constexpr int64_t kChunkBytes = kPanelRowsMax / kRows * (kTokens / 2) * 8 * 32;

template <class Vector>
inline size_t float_scratch_bytes(const LinearTask& task) noexcept {
  const bool in_place = task.format->dtype == tensor::DType::F32;
  return static_cast<size_t>(kChunkBytes + (in_place ? 0 : rows_together<Vector>(task) * padded(task.k) * 4));
}

template <class Vector>
void float_rows(const LinearTask& task, DecodeRow decode, int64_t row_begin, int64_t row_end,
                std::byte* scratch) noexcept {
  const int64_t rows = rows_together<Vector>(task), stride = padded(task.k);
  float* decoded = reinterpret_cast<float*>(scratch + kChunkBytes);
  Panel panel;
  panel.chunks = reinterpret_cast<Floats8*>(scratch);
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
    for (int64_t token = 0; token < task.n_tokens; token += kTokens) {
      run_tokens<Vector>(task, token, smaller(kTokens, task.n_tokens - token), panel);
    }
  }
}

}  // namespace
}  // namespace assay::backend::cpu
