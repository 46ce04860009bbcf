// What the kernels for attention of many tokens share: which queries a block of threads takes, who sees which
// positions, and how the probabilities of a warp's queries lie in shared memory.
#pragma once

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/rows/floats.cuh"
#include "ops/attention/attention.h"

namespace assay::backend::cuda {

inline constexpr int kSegment = static_cast<int>(ops::kAttentionSegment);
inline constexpr int kWarpQueries = 16;
inline constexpr int kGroupKeys = 64;  // that are scored or left out together
static_assert(kSegment == 256 && kKeyTile == 32);

// Probabilities of a warp: queries by fours, each four [256 keys][4]. Lane l has the fours 2 (l % 2) and 2 (l % 2) + 1;
// the odd lanes' lie in other banks.
inline constexpr int kFour = kSegment * 4, kOddLanes = 2 * kFour + 16, kWarpProbabilities = kOddLanes + 2 * kFour;

// The lane's eight queries of a key.
__device__ inline void read_queries(const float* from, float (&x)[8]) {
  read_4(from, x);
  read_4(from + kFour, x + 4);
}
__device__ inline void write_queries(const float (&x)[8], float* to) {
  write_4(to, x);
  write_4(to + kFour, x + 4);
}

// Consecutive tokens of one sequence with heads head_0 .. head_end of a KV head; a block takes a part of these that is
// a power of two.
struct QueryBlock {
  TokenTile tile;
  int64_t kv_head, head_0, head_end;
};

// Tile i with those of begin .. end that follow it in its sequence; i: then the first behind them.
__device__ inline TokenTile join_tiles(const TokenTile* tiles, int& i, int end) {
  TokenTile tile = tiles[i++];
  for (; i < end; ++i) {
    const TokenTile next = tiles[i];
    if (next.sequence != tile.sequence || next.token != tile.token + tile.n || next.position != tile.position + tile.n)
      break;
    tile.n += next.n;
  }
  return tile;
}

// First visible position of a token, and its own; tokens that are not there see what the last one sees.
struct Tokens {
  TokenTile tile;
  int64_t window;
  __device__ int position_of(int token) const { return tile.position + min(token, tile.n - 1); }
  __device__ int begin_of(int token) const { return static_cast<int>(ops::first_visible(position_of(token), window)); }
};

// What follows from it is made anew where it is used: worth no register, or place in memory, meanwhile.
__device__ inline int made_anew(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Which of eight queries from `first` on see a key: bit i is query i's.
struct Seen {
  int begin[8], end[8];
  __device__ Seen(const Tokens& tokens, int first, int heads_log2) {
    first = made_anew(first);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int token = (first + i) >> heads_log2;
      begin[i] = tokens.begin_of(token), end[i] = tokens.position_of(token) + 1;
    }
  }
  __device__ uint32_t of(int key) const {
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) bits |= static_cast<uint32_t>(key >= begin[i] && key < end[i]) << i;
    return bits;
  }
};

}  // namespace assay::backend::cuda
