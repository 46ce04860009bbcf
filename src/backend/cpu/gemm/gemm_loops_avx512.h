// The loops of the AVX-512 matrix-matrix kernels over superblocks of 256. The tokens of a pass are laid out in tiles
// once. Then of every 32 rows (two groups: the lanes of a register) one superblock after the other is unpacked and,
// near in the first-level cache, meets all tiles. The chains of the contract's 8 chunks of K wait in memory from one
// superblock to the next; what a chunk gives goes up the contract's tree at once. Included by kernel files only;
// everything here is local to the file that includes it.
//
// A Kernel has
//   kTokens                       tokens of a tile at most
//   kMinima                       products of pairs of words that make M of the contract, 0: the format has no minimum
//   Panel, Side                   one superblock of 16 rows unpacked; of the tokens of a tile
//   Format                        as in unpack_a256.h
//   unpack(task, p, panel)        the superblocks p of 16 rows
//   lay(task, token, n, b, side)  superblock b of n tokens
//   dots(panels, side, f)         F of the contract for two panels and as many tokens as f has; where d of the panel has a factor, F has its inverse
// Panels have minima[kMinima][32], d[16] and m[16] (both times the same factor), sides have minima[kTokens][] and d[].
#pragma once

#include <array>
#include <utility>

#include "backend/cpu/gemm/gemm_avx512.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kSideBytes = 1024 * 1024;  // what the laid tokens may take; those beyond unpack the weights once more

inline int64_t divide_up(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }
inline int64_t larger(int64_t a, int64_t b) noexcept { return a > b ? a : b; }

// sums[token] += the products of pairs of words of 16 rows with those of the tokens. Pair by pair, so that the tokens'
// chains run side by side.
template <int kPairs, int kUsed, int kStride>
inline void add_pairs(const int16_t (*of_rows)[32], const int32_t (*of_token)[kStride],
                      __m512i (&sums)[kUsed]) noexcept {
  for (int p = 0; p < kPairs; ++p) {
    const __m512i pairs = _mm512_load_si512(of_rows[p]);
    for (int t = 0; t < kUsed; ++t) sums[t] = _mm512_dpwssd_epi32(sums[t], pairs, _mm512_set1_epi32(of_token[t][p]));
  }
}

// Of the tokens of a tile and two groups of rows.
template <int kTokens>
struct TileSums {
  __m512 of[kTokens][2];
};

// One superblock of 32 rows, on its way through the 8 chunks: for every tile the same.
struct Step {
  const LinearTask& task;
  int64_t row, row_end;
  int chunk;
  bool begins, ends;  // the chunk with this superblock
};

// Of a tile: sums of 1, 2 and 4 chunks that wait for their partners, and the chain of the chunk that is under way.
template <int kTokens>
struct Levels {
  TileSums<kTokens> one, two, four, chain;
};

// The chains c of one group after a superblock; the whole tree after the last.
template <int kTokens, int kUsed>
inline void keep(const Step& step, int64_t token, int g, __m512 (&c)[kUsed], Levels<kTokens>& levels) noexcept {
  const auto add = [&](const TileSums<kTokens>& waiting) {
    for (int t = 0; t < kUsed; ++t) c[t] = _mm512_add_ps(waiting.of[t][g], c[t]);
  };
  const auto wait = [&](TileSums<kTokens>& level) {
    for (int t = 0; t < kUsed; ++t) level.of[t][g] = c[t];
  };
  if (!step.ends) return wait(levels.chain);
  if (step.chunk % 2 == 0) return wait(levels.one);
  add(levels.one);
  if (step.chunk % 4 == 1) return wait(levels.two);
  add(levels.two);
  if (step.chunk == 3) return wait(levels.four);
  add(levels.four);
  for (int t = 0; t < kUsed; ++t) store_rows(step.task, token + t, step.row + g * kRows, step.row_end, c[t]);
}

// Panels of two groups of rows against the kUsed tokens of a tile.
template <class Kernel, int kUsed>
void run_superblock(const Step& step, const typename Kernel::Panel* panels, const typename Kernel::Side& side,
                    int64_t token, Levels<Kernel::kTokens>& levels) noexcept {
  __m512 f[2][kUsed];
  Kernel::template dots<kUsed>(panels, side, f);
  for (int g = 0; g < 2; ++g) {
    asm volatile("" : : : "memory");  // what both groups read would fill the registers otherwise
    const __m512 d = _mm512_load_ps(panels[g].d);
    __m512 terms[kUsed], c[kUsed];
    if constexpr (Kernel::kMinima != 0) {
      const __m512 m = _mm512_load_ps(panels[g].m);
      __m512i minima[kUsed];
      for (int t = 0; t < kUsed; ++t) minima[t] = _mm512_setzero_si512();
      add_pairs<Kernel::kMinima>(panels[g].minima, side.minima, minima);
      for (int t = 0; t < kUsed; ++t) terms[t] = _mm512_mul_ps(m, _mm512_cvtepi32_ps(minima[t]));
      for (int t = 0; t < kUsed; ++t) terms[t] = _mm512_fmadd_ps(d, f[g][t], terms[t]);
    } else {
      for (int t = 0; t < kUsed; ++t) terms[t] = _mm512_mul_ps(d, f[g][t]);
    }
    if (step.begins) {
      for (int t = 0; t < kUsed; ++t) c[t] = _mm512_setzero_ps();
    } else {
      for (int t = 0; t < kUsed; ++t) c[t] = levels.chain.of[t][g];
    }
    for (int t = 0; t < kUsed; ++t) c[t] = _mm512_fmadd_ps(_mm512_set1_ps(side.d[t]), terms[t], c[t]);
    keep(step, token, g, c, levels);
  }
}

template <class Kernel>
using RunSuperblock = void (*)(const Step&, const typename Kernel::Panel*, const typename Kernel::Side&, int64_t,
                               Levels<Kernel::kTokens>&) noexcept;

template <class Kernel, int... kMinusOne>
constexpr std::array<RunSuperblock<Kernel>, sizeof...(kMinusOne)> run_superblocks(
    std::integer_sequence<int, kMinusOne...>) noexcept {
  return {&run_superblock<Kernel, kMinusOne + 1>...};
}

// The tokens of a pass in tiles; they differ by one token at most.
template <int kTokens>
class Tiles {
 public:
  Tiles() = default;
  Tiles(int64_t begin, int64_t end) noexcept
      : begin_(begin), n_tokens_(end - begin), count_(divide_up(end - begin, kTokens)) {}
  int64_t count() const noexcept { return count_; }

  // work(tile, token, n)
  template <class Work>
  void for_each(const Work& work) const noexcept {
    const int64_t least = n_tokens_ / count_, longer = n_tokens_ % count_;
    int64_t token = begin_;
    for (int64_t tile = 0; tile < count_; ++tile) {
      const int64_t n = least + (tile < longer ? 1 : 0);
      work(tile, token, n);
      token += n;
    }
  }

 private:
  int64_t begin_ = 0, n_tokens_ = 0, count_ = 0;
};

// Fetches a part of what will be read of 32 rows from p on, while a tile of `count` runs: no processor follows as many
// rows by itself.
inline void fetch_part(const std::byte* p, int64_t bytes, int64_t row_bytes, int64_t tile, int64_t count) noexcept {
  for (int64_t row = 2 * kRows * tile / count; row < 2 * kRows * (tile + 1) / count; ++row) {
    const std::byte* of_row = p + row * row_bytes;
    for (int64_t at = 0; at < bytes + 63; at += 64)
      _mm_prefetch(reinterpret_cast<const char*>(of_row + at), _MM_HINT_T1);
  }
}

template <class Kernel>
class GemmLoops {
 public:
  using Panel = typename Kernel::Panel;
  using Side = typename Kernel::Side;
  static constexpr int kTokens = Kernel::kTokens;

  GemmLoops(const LinearTask& task, std::byte* scratch) noexcept
      : task_(task), n_blocks_(task.k / 256), block_bytes_(Kernel::Format::block_bytes(task)),
        panels_(reinterpret_cast<Panel*>(scratch)), levels_(reinterpret_cast<Levels<kTokens>*>(panels_ + 2)),
        sides_(reinterpret_cast<Side*>(levels_ + tiles_max(task))) {}

  static size_t scratch_bytes(const LinearTask& task) noexcept {
    return 2 * sizeof(Panel) + static_cast<size_t>(tiles_max(task)) *
                                   (sizeof(Levels<kTokens>) + static_cast<size_t>(task.k / 256) * sizeof(Side));
  }

  void run(int64_t row_begin, int64_t row_end) noexcept {
    const int64_t passes = divide_up(task_.n_tokens, tiles_max(task_) * kTokens);
    for (int64_t pass = 0; pass < passes; ++pass) {
      tiles_ = Tiles<kTokens>(pass * task_.n_tokens / passes, (pass + 1) * task_.n_tokens / passes);
      for (int64_t b = 0; b < n_blocks_; ++b) lay(b);
      for (int64_t row = row_begin; row < row_end; row += 2 * kRows) {
        for (int chunk = 0; chunk < 8; ++chunk) run_chunk({task_, row, row_end, chunk, true, true});
      }
    }
  }

 private:
  static int64_t tiles_max(const LinearTask& task) noexcept {  // of a pass
    return smaller(larger(1, kSideBytes / (task.k / 256 * static_cast<int64_t>(sizeof(Side)))),
                   divide_up(task.n_tokens, kTokens));
  }

  void lay(int64_t b) noexcept {
    tiles_.for_each([&](int64_t tile, int64_t token, int64_t n) {
      Kernel::lay(task_, token, n, b, sides_[b * tiles_.count() + tile]);
    });
  }

  void run_chunk(Step step) noexcept {
    const int64_t first = step.chunk * n_blocks_ / 8, last = (step.chunk + 1) * n_blocks_ / 8;
    for (int64_t b = first; b < last; ++b) {
      step.begins = b == first;
      step.ends = b + 1 == last;
      unpack(step, b);
      const bool row_goes_on = b + 1 < n_blocks_;
      const int64_t next_row = step.row + (row_goes_on ? 0 : 2 * kRows), next_b = row_goes_on ? b + 1 : 0;
      run_tiles(step, sides_ + b * tiles_.count(), task_.weights + next_row * task_.row_bytes + next_b * block_bytes_);
    }
    if (first == last) skip(step);
  }

  void unpack(const Step& step, int64_t b) noexcept {
    for (int64_t g = 0; g < 2; ++g) {
      const std::byte* rows[kRows];
      rows_of_group<kRows>(task_, step.row + g * kRows, step.row_end, rows);
      for (const std::byte*& p : rows) p += b * block_bytes_;
      Kernel::unpack(task_, rows, panels_[g]);
    }
  }

  // next: of the superblocks that come after this.
  void run_tiles(const Step& step, const Side* sides, const std::byte* next) noexcept {
    static constexpr auto kRun = run_superblocks<Kernel>(std::make_integer_sequence<int, kTokens>());
    tiles_.for_each([&](int64_t tile, int64_t token, int64_t n) {
      fetch_part(next, block_bytes_, task_.row_bytes, tile, tiles_.count());
      kRun[static_cast<size_t>(n - 1)](step, panels_, sides[tile], token, levels_[tile]);
    });
  }

  // A chunk without superblocks; the last one always has one.
  void skip(const Step& step) noexcept {
    tiles_.for_each([&](int64_t tile, int64_t token, int64_t) {
      for (int g = 0; g < 2; ++g) {
        __m512 c[kTokens];
        for (__m512& of_token : c) of_token = _mm512_setzero_ps();
        keep(step, token, g, c, levels_[tile]);
      }
    });
  }

  const LinearTask& task_;
  const int64_t n_blocks_, block_bytes_;
  Panel* const panels_;            // of two groups of rows
  Levels<kTokens>* const levels_;  // [tiles]
  Side* const sides_;              // [superblocks][tiles]
  Tiles<kTokens> tiles_;
};

template <class Kernel>
void run_loops(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  GemmLoops<Kernel>(task, scratch).run(row_begin, row_end);
}

template <class Kernel>
GemmKernel walk_kernel() noexcept {
  return {&run_loops<Kernel>, &GemmLoops<Kernel>::scratch_bytes, kGemmRowStep};
}

}  // namespace
}  // namespace assay::backend::cpu
