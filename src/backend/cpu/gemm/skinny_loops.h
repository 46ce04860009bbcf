// The loops of the kernels for few tokens (skinny.h), and of some for many, shared by the instruction sets and formats.
// A strip of rows goes through its blocks in order: a block, or a few of a format with small ones, is unpacked into a
// panel in the first-level cache and all tokens run against it in tiles, while the next strip is fetched from memory.
// What a chunk gives goes up the contract's tree at once. Included by kernel files only; everything here is local to
// the file that includes it.
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

#include "backend/cpu/gemm/gemm_panels.h"
#include "backend/cpu/gemm/skinny.h"
#include "backend/cpu/gemv/floats8.h"
#include "backend/cpu/gemv/gemv_prepare.h"

namespace assay::backend::cpu {
namespace {

// Where the next strip is fetched from. Kernels fetch lines evenly between their products: a core has few lines under
// way at a time, and a burst of fetches stops the products behind it.
struct Ahead {
  const std::byte* p;
  void fetch_line() noexcept {
    __builtin_prefetch(p);
    p += 64;
  }
};

template <class Kernel>
using RunSkinny = void (*)(const typename Kernel::Panel*, const typename Kernel::Side*, int64_t, int64_t, Ahead&,
                           float*) noexcept;

template <class Kernel, int... kMinusOne>
constexpr std::array<RunSkinny<Kernel>, sizeof...(kMinusOne)> skinny_runs(
    std::integer_sequence<int, kMinusOne...>) noexcept {
  return {&Kernel::template run<kMinusOne + 1>...};
}

template <class Kernel>
class SkinnyLoops {
  using Panel = typename Kernel::Panel;
  using Side = typename Kernel::Side;
  static constexpr int64_t kRowsOfStrip = Kernel::kStripRows;

 public:
  SkinnyLoops(const LinearTask& task, std::byte* scratch) noexcept
      : task_(task), n_blocks_(task.k / Kernel::kBlock), block_bytes_(task.row_bytes / n_blocks_),
        panels_(reinterpret_cast<Panel*>(scratch)), sides_(reinterpret_cast<Side*>(panels_ + Kernel::kBlocksNear)),
        sums_(reinterpret_cast<float*>(sides_ + n_blocks_ * tiles_of_pass(task))),
        tail_(reinterpret_cast<std::byte*>(sums_ + kLevels * tiles_of_pass(task) * Kernel::kTokens * kRowsOfStrip)) {}

  static size_t scratch_bytes(const LinearTask& task) noexcept {
    const int64_t n = tiles_of_pass(task);
    return Kernel::kBlocksNear * sizeof(Panel) + static_cast<size_t>(task.k / Kernel::kBlock * n) * sizeof(Side) +
           static_cast<size_t>(kLevels * n * Kernel::kTokens * kRowsOfStrip) * sizeof(float) +
           static_cast<size_t>(kRowsOfStrip * task.row_bytes);
  }

  // is_laid: scratch holds the activations, as a run left them.
  void run(int64_t row_begin, int64_t row_end, bool is_laid) noexcept {
    const int64_t passes = divide_up(tiles(task_.n_tokens), tiles_of_pass(task_));
    for (int64_t pass = 0; pass < passes; ++pass) {
      begin_ = pass * task_.n_tokens / passes;
      n_tokens_ = (pass + 1) * task_.n_tokens / passes - begin_;
      n_tiles_ = tiles(n_tokens_);
      if (!is_laid || passes > 1) lay_tokens();
      run_pass(row_begin, row_end);
    }
  }

 private:
  static constexpr int64_t kSideBytes =
      2 * 1024 * 1024;  // what the tokens of a pass may take; those beyond unpack the weights once more
  static constexpr int kLevels =
      4;  // sums of 1, 2 and 4 chunks that wait for their partners, and the chain of an odd chunk

  static constexpr int64_t divide_up(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }
  static constexpr int64_t tiles_of_pass(const LinearTask& task) noexcept {
    const int64_t fit = kSideBytes / (task.k / Kernel::kBlock * static_cast<int64_t>(sizeof(Side)));
    return smaller(fit < 1 ? 1 : fit, tiles(task.n_tokens));
  }

  void lay_tokens() const noexcept {
    for (int64_t b = 0; b < n_blocks_; ++b) {
      for (int64_t tile = 0; tile < n_tiles_; ++tile) {
        Kernel::lay(task_, begin_ + first_token(tile), first_token(tile + 1) - first_token(tile), b,
                    sides_[b * n_tiles_ + tile]);
      }
    }
  }

  void run_pass(int64_t row_begin, int64_t row_end) const noexcept {
    for (int64_t row = row_begin; row < row_end; row += kRowsOfStrip) {
      const bool whole = row + kRowsOfStrip <= row_end;
      const std::byte* strip = whole ? task_.weights + row * task_.row_bytes : copy_tail(row, row_end);
      // Past the end too: a thread's next range mostly begins there.
      run_strip(
          row, row_end, strip,
          row + 2 * kRowsOfStrip <= task_.y.cols ? task_.weights + (row + kRowsOfStrip) * task_.row_bytes : nullptr);
    }
  }

  static constexpr int64_t tiles(int64_t tokens) noexcept { return divide_up(tokens, Kernel::kTokens); }
  int64_t first_token(int64_t tile) const noexcept { return tile * n_tokens_ / n_tiles_; }  // of those of the pass

  // Rows past the end repeat the last one; their results are not stored.
  const std::byte* copy_tail(int64_t row, int64_t row_end) const noexcept {
    for (int64_t i = 0; i < kRowsOfStrip; ++i) {
      __builtin_memcpy(tail_ + i * task_.row_bytes, task_.weights + smaller(row + i, row_end - 1) * task_.row_bytes,
                       static_cast<size_t>(task_.row_bytes));
    }
    return tail_;
  }

  // next: what is fetched meanwhile, or null.
  void run_strip(int64_t row, int64_t row_end, const std::byte* strip, const std::byte* next) const noexcept {
    static constexpr auto kRun = skinny_runs<Kernel>(std::make_integer_sequence<int, Kernel::kTokens>());
    const int64_t strip_bytes = kRowsOfStrip * block_bytes_;  // of one block
    Ahead of_next{next}, idle{strip};
    for (int i = 0; i < 8; ++i) {
      float* const chains = chains_of(i);
      for (int64_t at = 0; at < n_tokens_ * kRowsOfStrip; at += kLanes) store_8(chains + at, zero_8());
      const int64_t end = (i + 1) * n_blocks_ / 8;
      for (int64_t b = i * n_blocks_ / 8, n; b < end; b += n) {
        n = smaller(Kernel::kBlocksNear, end - b);
        // The kernel does not know how much of the next strip is the share of these blocks.
        const auto ahead = [&]() -> Ahead& {
          return next != nullptr && of_next.p < next + (b + n) * strip_bytes ? of_next : idle = {strip};
        };
        for (int64_t j = 0; j < n; ++j) Kernel::unpack(task_, strip + (b + j) * block_bytes_, ahead(), panels_[j]);
        for (int64_t tile = 0; tile < n_tiles_; ++tile) {
          const int64_t token = first_token(tile), tokens = first_token(tile + 1) - token;
          kRun[static_cast<size_t>(tokens - 1)](panels_, sides_ + b * n_tiles_ + tile, n_tiles_, n, ahead(),
                                                chains + token * kRowsOfStrip);
          if (next == nullptr) continue;
          while (of_next.p < next + b * strip_bytes + (tile + 1) * n * strip_bytes / n_tiles_) of_next.fetch_line();
        }
      }
      if (i % 2 != 0) close_chunk(i, row, row_end);
    }
  }

  float* level(int i) const noexcept { return sums_ + i * n_tokens_ * kRowsOfStrip; }
  float* chains_of(int chunk) const noexcept { return level(chunk % 2 == 0 ? 0 : 3); }

  // Adds the chains of an odd chunk to what waits for them; the whole tree after the last.
  void close_chunk(int chunk, int64_t row, int64_t row_end) const noexcept {
    const int n_waiting = chunk % 4 == 1 ? 1 : chunk == 3 ? 2 : 3;  // levels
    for (int64_t t = 0; t < n_tokens_; ++t) {
      alignas(32) float sums[kRowsOfStrip];
      for (int64_t r = 0; r < kRowsOfStrip; r += kLanes) {
        const int64_t at = t * kRowsOfStrip + r;
        Floats8 sum = load_8(level(3) + at);
        for (int i = 0; i < n_waiting; ++i) sum = add_8(load_8(level(i) + at), sum);
        store_8(chunk < 7 ? level(n_waiting) + at : sums + r, sum);
      }
      if (chunk == 7) store(begin_ + t, row, smaller(row_end - row, kRowsOfStrip), sums);
    }
  }

  // With the bias.
  void store(int64_t token, int64_t row, int64_t n, const float* sums) const noexcept {
    float* y = task_.y.data + token * task_.y.stride + row;
    if (task_.bias == nullptr && n == kRowsOfStrip) {
      __builtin_memcpy(y, sums, kRowsOfStrip * sizeof(float));
      return;
    }
    for (int64_t i = 0; i < n; ++i) y[i] = task_.bias == nullptr ? sums[i] : sums[i] + task_.bias[row + i];
  }

  const LinearTask& task_;
  const int64_t n_blocks_, block_bytes_;
  Panel* const panels_;
  Side* const sides_;  // [n_blocks][n_tiles]
  float* const sums_;  // [levels][n_tokens][kStripRows]
  std::byte* const tail_;
  int64_t begin_ = 0, n_tokens_ = 0, n_tiles_ = 0;  // of the pass
};

template <class Kernel>
[[gnu::noinline]] void run_skinny_loops(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch,
                                        bool is_laid) noexcept {
  SkinnyLoops<Kernel>(task, scratch).run(row_begin, row_end, is_laid);
}

template <class Kernel, bool kIsLaid>
void run_skinny(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  run_skinny_loops<Kernel>(task, row_begin, row_end, scratch, kIsLaid);
}

template <class Kernel>
size_t skinny_scratch_bytes(const LinearTask& task) noexcept {
  return SkinnyLoops<Kernel>::scratch_bytes(task);
}

template <class Kernel>
GemmKernel skinny_kernel() noexcept {
  static_assert(kGemmRowStep % Kernel::kStripRows == 0);
  return {&run_skinny<Kernel, false>, &skinny_scratch_bytes<Kernel>, kGemmRowStep, &run_skinny<Kernel, true>};
}

}  // namespace
}  // namespace assay::backend::cpu
