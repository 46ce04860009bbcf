// Activations laid out for the matrix-vector kernels. The 8 chunks of contract dot/1 are the 8 lanes of a register:
// step s of a row handles block first_block(lane) + s of every lane, and the last step has blocks for some lanes only,
// because chunks differ in length by one block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/linear.h"

namespace assay::backend::cpu {

inline constexpr int kLanes = 8;
inline constexpr int kGemvColumnsMax = 4;  // planes times tokens that one pass over the weights serves

// Bytes of one step and column of superblocks: their elements, and the sums of their 16 runs of 16: of even numbers, of
// odd ones, of two together.
inline constexpr int64_t kStepElements = 2048, kStepSums = 384;

// How the chunks of a row of n blocks lie over the lanes. Where few lanes have a block at the last step, several rows
// share it: the places of that step are the blocks of the first of these rows, then those of the next.
inline constexpr int kRowsOfLastStepMax = 4;
struct GemvChain {
  int64_t n_blocks = 0;
  int64_t full_steps = 0;     // steps with a block in every lane
  int64_t steps = 0;          // full_steps, or one more
  int64_t first[kLanes];      // block of a lane at step 0
  int32_t last_mask[kLanes];  // -1: the lane has a block at the last step
  int rows_of_last_step = 1;
  int64_t last[kLanes];      // of a place of the last step: block to read; any valid one where there is nothing to do
  int32_t last_row[kLanes];  // ... and which of the rows that share the step
  int32_t place[kRowsOfLastStepMax][kLanes];  // of a row of the last step: where the terms of its lanes are
};

// How a thread goes through its rows, and how far ahead of its reads it fetches; no bit depends on it. A processor's
// memory decides which is the faster.
//
//   by parts          row 0, row n/3, row 2n/3 by turns of some 512 bytes; then row 1, ..    each part is a stream of its own to the memory
//   one by one        row 0 whole, row 1 whole, ..; rows that share their last step together  one stream, fetched far ahead
struct GemvWalk {
  bool one_by_one = false;
  int64_t ahead_bytes = 2048;  // by parts a row's bytes where these are more
};

// Activations of up to kGemvColumnsMax columns in the order of the steps, in 64-byte aligned scratch. Column = token *
// planes + plane. Places without a block hold zeros. The last step is in the order of its places, but for d, which is
// by lanes there too.
struct GemvOperand {
  GemvChain chain;
  GemvWalk walk;
  int planes = 1;
  int tokens = 1;
  // A32: [steps][columns][4][64]: first halves (elements 0..15) of the blocks of lanes 0 4 1 5, their second halves,
  // then lanes 2 6 3 7 alike. A256, if lanes were asked for: [steps][groups][16][columns][16 x lanes of a group]: the
  // 16 pieces of 16 elements of the blocks of lanes 0 4 (1 5), then (1 5 and) 2 6 (3 7) ..
  const int8_t* q = nullptr;
  // A32 of two planes, if asked for. [steps][tokens][8][32]: both planes of the blocks of lanes 0 .. 7 as 128 times the
  // first's number and the second's.
  const int16_t* joined = nullptr;
  // A256, if lanes were asked for. [steps][groups][columns][3][8 x lanes of a group]: sums as words, 8 of each lane: of
  // the pieces 0 2 .., of 1 3 .., of both.
  const std::byte* words = nullptr;
  const int32_t* sums = nullptr;  // A32 only. [steps][tokens][8]: sums of the 32 elements, of two planes 128 times the
                                  // first's and the second's
  const float* g = nullptr;       // A32 only. [steps][tokens][8]: the sums as the float G of the contract
  const float* d = nullptr;       // [steps][tokens][8]
};

GemvChain gemv_chain(int64_t n_blocks) noexcept;

size_t gemv_scratch_bytes(const LinearTask& task) noexcept;

// Tokens of the next pass that begins at `token`: 1, 2 or 4, at most kGemvColumnsMax columns.
int gemv_tokens(const LinearTask& task, int64_t token) noexcept;

// What is laid out beside what every kernel reads: superblocks in the order of the steps, so many lanes a group (of the
// set, or 0: not at all); both planes of blocks of 32 as one number.
inline constexpr int kGroupLanesAvx2 = 2, kGroupLanesAvx512 = 4;
struct GemvLayout {
  int group_lanes = 0;
  bool joined = false;
  GemvWalk walk = {};
};

// Fills scratch with tokens [token, token + tokens) of the task.
GemvOperand gemv_prepare(const LinearTask& task, int64_t token, int tokens, const GemvLayout& layout,
                         std::byte* scratch) noexcept;

}  // namespace assay::backend::cpu
