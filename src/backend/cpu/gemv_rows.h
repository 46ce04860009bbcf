// The walk of the matrix-vector kernels over rows and steps, shared by all formats and instruction sets: contract dot/1 over 8 lanes. Included by
// kernel files only; everything here is local to the file that includes it.
#pragma once

#include "backend/cpu/block_scales.h"
#include "backend/cpu/eight.h"
#include "backend/cpu/gemv_prepare.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kPrefetchBytes = 2048;  // ahead of the row; where reads from memory were fastest
constexpr int64_t kStreams = 3;

// The blocks that one step handles: p[lane] is block number first[lane] + add of the row.
struct StepBlocks {
  const std::byte* p[kLanes];
  const int64_t* first;
  int64_t add;
  int64_t step;
  const std::byte* ahead;  // what to fetch while the step works: as many bytes as it reads
};

// Fetches one of kParts parts of kBytes, so that a step may spread them between its arithmetic.
template <int kParts, int kBytes>
inline void prefetch_part(const StepBlocks& blocks, int part) noexcept {
  const std::byte* from = blocks.ahead + part * (kBytes / kParts);
  for (int at = 0; at < kBytes / kParts; at += 64) __builtin_prefetch(from + at);
}

// F of section 2.2 for 8 blocks from the sums of one plane or two.
template <int kPlanes>
inline Floats8 join_planes(const Ints8* sums) noexcept {
  if constexpr (kPlanes == 1) return to_floats(sums[0]);
  return fma_8(splat_8(0x1p-7f), to_floats(sums[1]), to_floats(sums[0]));
}

// The term of 8 superblocks, without the activations' scale. minimum: read where the format has minima.
template <bool kHasMin, int kPlanes>
inline Floats8 superblock_term(const Scales& scales, const Ints8* dot, const Ints8* minimum) noexcept {
  const Floats8 f = join_planes<kPlanes>(dot);
  if constexpr (!kHasMin) return mul_8(scales.d, f);
  return fma_8(scales.d, f, mul_8(scales.m, join_planes<kPlanes>(minimum)));
}

// Where blocks lie in a row, in bytes from the first of a step.
struct BlockPlaces {
  alignas(64) int64_t at_first[kLanes], at_last[kLanes];
  int64_t block_bytes, bytes_of_step;
};

// Format::step<planes, tokens>(task, x, token, blocks, c) adds the terms of 8 blocks to the chains c of every token.
template <class Format, int kPlanes, int kTokens>
[[gnu::always_inline]] inline void gemv_row(const LinearTask& task, const GemvOperand& x, int64_t token, const BlockPlaces& places, int64_t r) noexcept {
  const GemvChain& chain = x.chain;
  const std::byte* row = task.weights + r * task.row_bytes;
  StepBlocks blocks;
  blocks.ahead = row + kPrefetchBytes;
  Floats8 c[kTokens];
  for (int t = 0; t < kTokens; ++t) c[t] = zero_8();
  for (int64_t step = 0; step < chain.steps; ++step) {
    const bool masked = step == chain.full_steps;
    const std::byte* begin = masked ? row : row + step * places.block_bytes;
    const int64_t* at = masked ? places.at_last : places.at_first;
    for (int lane = 0; lane < kLanes; ++lane) blocks.p[lane] = begin + at[lane];
    blocks.first = masked ? chain.last : chain.first;
    blocks.add = masked ? 0 : step;
    blocks.step = step;
    Floats8 next[kTokens];
    for (int t = 0; t < kTokens; ++t) next[t] = c[t];
    Format::template step<kPlanes, kTokens>(task, x, token, blocks, next);
    for (int t = 0; t < kTokens; ++t) c[t] = masked ? choose_8(chain.last_mask, next[t], c[t]) : next[t];
    blocks.ahead += places.bytes_of_step;
  }
  for (int t = 0; t < kTokens; ++t) {
    const float dot = tree(c[t]);
    task.y.data[(token + t) * task.y.stride + r] = task.bias == nullptr ? dot : dot + task.bias[r];
  }
}

// The rows of a range, by turns of kStreams parts of it: a processor's own prefetching follows each part, and what one of them keeps in flight does not fill
// the memory's pipe.
template <class Format, int kPlanes, int kTokens>
void gemv_rows(const LinearTask& task, const GemvOperand& x, int64_t token, int64_t row_begin, int64_t row_end) noexcept {
  BlockPlaces places;
  places.block_bytes = Format::block_bytes(task);
  places.bytes_of_step = task.row_bytes / x.chain.steps;
  for (int lane = 0; lane < kLanes; ++lane) {
    places.at_first[lane] = x.chain.first[lane] * places.block_bytes;
    places.at_last[lane] = x.chain.last[lane] * places.block_bytes;
  }
  const int64_t part = (row_end - row_begin + kStreams - 1) / kStreams;
  for (int64_t i = 0; i < part; ++i) {
    for (int64_t r = row_begin + i; r < row_end; r += part) gemv_row<Format, kPlanes, kTokens>(task, x, token, places, r);
  }
}

// The instance for the operand's planes and tokens.
template <class Format>
void gemv_any(const LinearTask& task, const GemvOperand& x, int64_t token, int64_t row_begin, int64_t row_end) noexcept {
  if (x.planes == 2) {
    if (x.tokens == 2) return gemv_rows<Format, 2, 2>(task, x, token, row_begin, row_end);
    return gemv_rows<Format, 2, 1>(task, x, token, row_begin, row_end);
  }
  if (x.tokens == 4) return gemv_rows<Format, 1, 4>(task, x, token, row_begin, row_end);
  if (x.tokens == 2) return gemv_rows<Format, 1, 2>(task, x, token, row_begin, row_end);
  return gemv_rows<Format, 1, 1>(task, x, token, row_begin, row_end);
}

}  // namespace
}  // namespace assay::backend::cpu
