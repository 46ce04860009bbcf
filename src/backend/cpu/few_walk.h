// The walk of the kernels for few tokens (few.h), shared by the instruction sets and formats. A strip of rows goes through its blocks in order: a
// block, or a few of a format with small ones, is unpacked into a panel in the first-level cache and all tokens run against it in tiles, while the
// next strip is fetched from memory. Included by kernel files only; everything here is local to the file that includes it.
//
// A Kernel has
//   kStripRows                        rows of a strip, a multiple of 8
//   kBlock, kBlocksNear               elements of a block; blocks unpacked at a time at most
//   kTokens                           tokens of a tile at most
//   Panel, Side                       one block of a strip, and of the tokens of a tile
//   unpack(task, p, ahead, panel)              the block that begins at p in the strip's first row
//   lay(task, token, n, b, side)               block b of n tokens
//   run<n>(panels, sides, step, n_blocks, ahead, c)   adds the terms of n_blocks blocks, their sides `step` apart, to the chains c[n][kStripRows]
#pragma once

#include <array>
#include <utility>

#include "backend/cpu/eight.h"
#include "backend/cpu/few.h"
#include "backend/cpu/gemv_prepare.h"
#include "backend/cpu/gemm_panels.h"

namespace assay::backend::cpu {
namespace {

// Where the next strip is fetched from. Kernels fetch lines evenly between their products: a core has few lines under way at a time, and a burst of
// fetches stops the products behind it.
struct Ahead {
  const std::byte* p;
  void fetch_line() noexcept {
    __builtin_prefetch(p);
    p += 64;
  }
};

template <class Kernel>
using RunFew = void (*)(const typename Kernel::Panel*, const typename Kernel::Side*, int64_t, int64_t, Ahead&, float*) noexcept;

template <class Kernel, int... kMinusOne>
constexpr std::array<RunFew<Kernel>, sizeof...(kMinusOne)> few_runs(std::integer_sequence<int, kMinusOne...>) noexcept {
  return {&Kernel::template run<kMinusOne + 1>...};
}

template <class Kernel>
class FewWalk {
  using Panel = typename Kernel::Panel;
  using Side = typename Kernel::Side;
  static constexpr int64_t kRowsOfStrip = Kernel::kStripRows;

 public:
  FewWalk(const LinearTask& task, std::byte* scratch) noexcept
      : task_(task),
        n_blocks_(task.k / Kernel::kBlock),
        block_bytes_(task.row_bytes / n_blocks_),
        n_tiles_(tiles(task.n_tokens)),
        panels_(reinterpret_cast<Panel*>(scratch)),
        sides_(reinterpret_cast<Side*>(panels_ + Kernel::kBlocksNear)),
        chains_(reinterpret_cast<float*>(sides_ + n_blocks_ * n_tiles_)),
        tail_(reinterpret_cast<std::byte*>(chains_ + 8 * task.n_tokens * kRowsOfStrip)) {}

  static size_t scratch_bytes(const LinearTask& task) noexcept {
    return Kernel::kBlocksNear * sizeof(Panel) + static_cast<size_t>(task.k / Kernel::kBlock * tiles(task.n_tokens)) * sizeof(Side) +
           static_cast<size_t>(8 * task.n_tokens * kRowsOfStrip) * sizeof(float) + static_cast<size_t>(kRowsOfStrip * task.row_bytes);
  }

  void run(int64_t row_begin, int64_t row_end) const noexcept {
    for (int64_t b = 0; b < n_blocks_; ++b) {
      for (int64_t tile = 0; tile < n_tiles_; ++tile) {
        Kernel::lay(task_, first_token(tile), first_token(tile + 1) - first_token(tile), b, sides_[b * n_tiles_ + tile]);
      }
    }
    for (int64_t row = row_begin; row < row_end; row += kRowsOfStrip) {
      for (int64_t i = 0; i < 8 * task_.n_tokens * kRowsOfStrip; i += kLanes) store_8(chains_ + i, zero_8());
      const bool whole = row + kRowsOfStrip <= row_end;
      const std::byte* strip = whole ? task_.weights + row * task_.row_bytes : copy_tail(row, row_end);
      run_strip(strip, row + 2 * kRowsOfStrip <= row_end ? strip + kRowsOfStrip * task_.row_bytes : nullptr);
      for (int64_t t = 0; t < task_.n_tokens; ++t) store(t, row, smaller(row_end - row, kRowsOfStrip));
    }
  }

 private:
  static constexpr int64_t tiles(int64_t tokens) noexcept { return (tokens + Kernel::kTokens - 1) / Kernel::kTokens; }
  int64_t first_token(int64_t tile) const noexcept { return tile * task_.n_tokens / n_tiles_; }

  // Rows past the end repeat the last one; their results are not stored.
  const std::byte* copy_tail(int64_t row, int64_t row_end) const noexcept {
    for (int64_t i = 0; i < kRowsOfStrip; ++i) {
      __builtin_memcpy(tail_ + i * task_.row_bytes, task_.weights + smaller(row + i, row_end - 1) * task_.row_bytes,
                       static_cast<size_t>(task_.row_bytes));
    }
    return tail_;
  }

  // next: what is fetched meanwhile, or null.
  void run_strip(const std::byte* strip, const std::byte* next) const noexcept {
    static constexpr auto kRun = few_runs<Kernel>(std::make_integer_sequence<int, Kernel::kTokens>());
    const int64_t strip_bytes = kRowsOfStrip * block_bytes_;  // of one block
    Ahead of_next{next}, idle{strip};
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t end = (i + 1) * n_blocks_ / 8;
      for (int64_t b = i * n_blocks_ / 8, n; b < end; b += n) {
        n = smaller(Kernel::kBlocksNear, end - b);
        // The kernel does not know how much of the next strip is the share of these blocks.
        const auto ahead = [&]() -> Ahead& { return next != nullptr && of_next.p < next + (b + n) * strip_bytes ? of_next : idle = {strip}; };
        for (int64_t j = 0; j < n; ++j) Kernel::unpack(task_, strip + (b + j) * block_bytes_, ahead(), panels_[j]);
        for (int64_t tile = 0; tile < n_tiles_; ++tile) {
          const int64_t token = first_token(tile), tokens = first_token(tile + 1) - token;
          kRun[static_cast<size_t>(tokens - 1)](panels_, sides_ + b * n_tiles_ + tile, n_tiles_, n, ahead(), chain(i, token));
          if (next == nullptr) continue;
          while (of_next.p < next + b * strip_bytes + (tile + 1) * n * strip_bytes / n_tiles_) of_next.fetch_line();
        }
      }
    }
  }

  float* chain(int64_t i, int64_t token) const noexcept { return chains_ + (i * task_.n_tokens + token) * kRowsOfStrip; }

  // The tree of the contract over the 8 chunks, then the bias.
  void store(int64_t token, int64_t row, int64_t n) const noexcept {
    float* y = task_.y.data + token * task_.y.stride + row;
    for (int64_t r = 0; r < n; r += kLanes) {
      const auto pair = [&](int64_t i) { return add_8(load_8(chain(i, token) + r), load_8(chain(i + 1, token) + r)); };
      alignas(32) float sum[kLanes];
      store_8(sum, add_8(add_8(pair(0), pair(2)), add_8(pair(4), pair(6))));
      for (int64_t j = 0; j < smaller(kLanes, n - r); ++j) y[r + j] = task_.bias == nullptr ? sum[j] : sum[j] + task_.bias[row + r + j];
    }
  }

  const LinearTask& task_;
  const int64_t n_blocks_, block_bytes_, n_tiles_;
  Panel* const panels_;
  Side* const sides_;    // [n_blocks][n_tiles]
  float* const chains_;  // [8][n_tokens][kStripRows]
  std::byte* const tail_;
};

template <class Kernel>
void run_few(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  FewWalk<Kernel>(task, scratch).run(row_begin, row_end);
}

template <class Kernel>
size_t few_scratch_bytes(const LinearTask& task) noexcept {
  return FewWalk<Kernel>::scratch_bytes(task);
}

template <class Kernel>
GemmKernel few_kernel() noexcept {
  static_assert(kGemmRowStep % Kernel::kStripRows == 0);
  return {&run_few<Kernel>, &few_scratch_bytes<Kernel>, kGemmRowStep};
}

}  // namespace
}  // namespace assay::backend::cpu
