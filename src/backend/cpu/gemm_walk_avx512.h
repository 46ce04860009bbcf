// The walk of the AVX-512 matrix-matrix kernels over superblocks of 256. For a band of rows and each of the contract's 8 chunks of K the weights are
// unpacked once, for 16 rows (the lanes of a register) at a time, and all tokens run against them in tiles; what a chunk gives goes up the
// contract's tree at once. Included by kernel files only; everything here is local to the file that includes it.
//
// A Kernel has
//   kTokens                       tokens of a tile at most
//   panel_bytes(), side_bytes()   of one superblock: 16 rows unpacked; the activations of a tile
//   unpack(task, rows, b, out)    superblock b of 16 rows (pointers to their first superblocks)
//   prepare(task, token, n, b, out)
//   run<n>(low, high, sides, n_blocks, c)   adds n_blocks superblocks to the chains c[n][2] of two groups of 16 rows; their panels and the sides
//                                           step by panel_bytes and side_bytes
#pragma once

#include <array>
#include <utility>

#include "backend/cpu/gemm_avx512.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kPassTokens = 512;  // that share one unpacking
constexpr int64_t kBandGroups = 16;   // groups of 16 rows in a band at most
constexpr int64_t kBandBytes = 448 * 1024;
constexpr int kLevels = 3;  // of the tree, for sums of 1, 2 and 4 chunks that wait for their partners

inline int64_t larger(int64_t a, int64_t b) noexcept { return a > b ? a : b; }
inline int64_t divide_up(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }

// Of one task: how much of it is held at a time, and where in the scratch memory.
struct Band {
  int64_t blocks;  // of the longest chunk
  int64_t groups;
  int64_t tokens;  // of a pass
  int64_t panel_bytes, side_bytes, level_bytes;

  int64_t bytes() const noexcept { return panel_bytes + side_bytes + kLevels * level_bytes; }
};

template <class Kernel>
Band make_band(const LinearTask& task) noexcept {
  Band band;
  band.blocks = divide_up(task.k / 256, 8);
  band.groups = larger(2, smaller(kBandGroups, kBandBytes / (band.blocks * Kernel::panel_bytes()) / 2 * 2));
  band.tokens = smaller(task.n_tokens, kPassTokens);
  band.panel_bytes = band.groups * band.blocks * Kernel::panel_bytes();
  band.side_bytes = band.blocks * Kernel::side_bytes();
  band.level_bytes = divide_up(band.tokens, Kernel::kTokens) * Kernel::kTokens * band.groups * 64;
  return band;
}

template <class Kernel>
using RunTile = void (*)(const std::byte*, const std::byte*, const std::byte*, int64_t, __m512 (*)[2]) noexcept;

template <class Kernel, int... kMinusOne>
constexpr std::array<RunTile<Kernel>, sizeof...(kMinusOne)> run_tiles(std::integer_sequence<int, kMinusOne...>) noexcept {
  return {&Kernel::template run<kMinusOne + 1>...};
}

template <class Kernel>
class Walk {
 public:
  Walk(const LinearTask& task, std::byte* scratch) noexcept
      : task_(task),
        band_(make_band<Kernel>(task)),
        panel_(scratch),
        side_(scratch + band_.panel_bytes),
        levels_(side_ + band_.side_bytes) {}

  void run(int64_t row_begin, int64_t row_end) const noexcept {
    for (int64_t row = row_begin; row < row_end; row += band_.groups * kRows) {
      const int64_t end = smaller(row_end, row + band_.groups * kRows);
      for (int64_t token = 0; token < task_.n_tokens; token += band_.tokens) {
        for (int64_t i = 0; i < 8; ++i) run_chunk(i, row, end, token, smaller(task_.n_tokens, token + band_.tokens));
      }
    }
  }

 private:
  void run_chunk(int64_t i, int64_t row, int64_t row_end, int64_t token_begin, int64_t token_end) const noexcept {
    const int64_t n_blocks = task_.k / 256, first = i * n_blocks / 8, blocks = (i + 1) * n_blocks / 8 - first;
    unpack(row, row_end, first, blocks);
    const int64_t tiles = divide_up(token_end - token_begin, Kernel::kTokens);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t token = token_begin + tile * (token_end - token_begin) / tiles;
      const int64_t n = token_begin + (tile + 1) * (token_end - token_begin) / tiles - token;
      for (int64_t b = 0; b < blocks; ++b) Kernel::prepare(task_, token, n, first + b, side_ + b * Kernel::side_bytes());
      for (int64_t g = 0; row + g * kRows < row_end; g += 2) {
        std::byte* level = levels_ + (tile * (band_.groups / 2) + g / 2) * static_cast<int64_t>(sizeof(Sums));
        run_tile(i, blocks, n, panel_ + g * blocks * Kernel::panel_bytes(), level);
        if (i == 7) store_tile_of(token, n, row + g * kRows, row_end, *reinterpret_cast<const Sums*>(level));
      }
    }
  }

  void unpack(int64_t row, int64_t row_end, int64_t first, int64_t blocks) const noexcept {
    const int64_t block_bytes = task_.row_bytes / (task_.k / 256), groups = divide_up(row_end - row, 2 * kRows) * 2;
    for (int64_t g = 0; g < groups; ++g) {
      const std::byte* rows[kRows];
      rows_of_group<kRows>(task_, row + g * kRows, row_end, rows);
      for (const std::byte*& p : rows) p += first * block_bytes;
      for (int64_t b = 0; b < blocks; ++b) Kernel::unpack(task_, rows, b, panel_ + (g * blocks + b) * Kernel::panel_bytes());
    }
  }

  using Sums = __m512[Kernel::kTokens][2];

  // A sum of 2^n chunks waits at level n. The last chunk leaves the whole tree at level 0.
  void run_tile(int64_t i, int64_t blocks, int64_t n, const std::byte* panel, std::byte* levels) const noexcept {
    static constexpr auto kRun = run_tiles<Kernel>(std::make_integer_sequence<int, Kernel::kTokens>());
    const auto level = [&](int number) -> Sums& { return *reinterpret_cast<Sums*>(levels + number * band_.level_bytes); };
    Sums own;
    Sums& c = i % 2 == 0 ? level(0) : own;
    for (int64_t t = 0; t < n; ++t) c[t][0] = c[t][1] = _mm512_setzero_ps();
    kRun[static_cast<size_t>(n - 1)](panel, panel + blocks * Kernel::panel_bytes(), side_, blocks, c);
    if (i % 2 == 0) return;
    const Sums &zero = level(0), &one = level(1), &two = level(2);
    for (int64_t t = 0; t < n; ++t) {
      for (int h = 0; h < 2; ++h) {
        __m512 sum = _mm512_add_ps(zero[t][h], own[t][h]);
        if (i % 4 == 3) sum = _mm512_add_ps(one[t][h], sum);
        if (i == 7) sum = _mm512_add_ps(two[t][h], sum);
        level(i == 7 ? 0 : i == 3 ? 2 : 1)[t][h] = sum;
      }
    }
  }

  void store_tile_of(int64_t token, int64_t n, int64_t row, int64_t row_end, const Sums& sums) const noexcept {
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t h = 0; h < 2; ++h) store_rows(task_, token + t, row + h * kRows, row_end, sums[t][h]);
    }
  }

  const LinearTask& task_;
  const Band band_;
  std::byte* const panel_;
  std::byte* const side_;
  std::byte* const levels_;  // [kLevels][tiles][groups / 2]: a tile of sums
};

template <class Kernel>
void run_walk(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  Walk<Kernel>(task, scratch).run(row_begin, row_end);
}

template <class Kernel>
size_t walk_scratch_bytes(const LinearTask& task) noexcept {
  return static_cast<size_t>(make_band<Kernel>(task).bytes());
}

template <class Kernel>
GemmKernel walk_kernel() noexcept {
  return {&run_walk<Kernel>, &walk_scratch_bytes<Kernel>, kGemmRowStep};
}

}  // namespace
}  // namespace assay::backend::cpu
