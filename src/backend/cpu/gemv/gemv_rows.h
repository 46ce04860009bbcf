// The loops of the matrix-vector kernels over rows and steps, shared by all formats and instruction sets: contract
// dot/1 over 8 lanes. Included by kernel files only; everything here is local to the file that includes it.
#pragma once

#include <algorithm>

#include "backend/cpu/gemv/block_scales.h"
#include "backend/cpu/gemv/floats8.h"
#include "backend/cpu/gemv/gemv_prepare.h"

namespace assay::backend::cpu {
namespace {

// A walk by parts (GemvWalk) goes through the rows of three parts of a range, four where rows share their last step, by
// turns of about 512 bytes: a processor's own prefetching follows each part, and what one of them keeps in flight does
// not fill the memory's pipe.
constexpr int64_t kStreams = 3, kStreamsMax = kRowsOfLastStepMax;
constexpr int64_t kTurnBytes = 704;

// The blocks that one step handles: p[i] is block number first[i] + add of its row.
struct StepBlocks {
  const std::byte* p[kLanes];
  const int64_t* first;
  int64_t add;
  int64_t step;
  const std::byte* ahead;  // what to fetch while the step works: as many bytes as it reads
};

// Fetches one of kParts parts of kBytes, so that a step may spread them between its arithmetic. Inlined early: out of
// line the compiler takes a function that only fetches for one without effect and drops its calls (tests/prefetches.py
// looks).
template <int kParts, int kBytes>
[[gnu::always_inline]] inline void prefetch_part(const StepBlocks& blocks, int part) noexcept {
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

// Where blocks lie in a row, in bytes from the first of a step, and how a row is walked.
struct BlockPlaces {
  alignas(64) int64_t at_first[kLanes], at_last[kLanes];
  int64_t block_bytes, steps_of_turn;
  int64_t ahead;  // from a row to what is fetched while its first step works
};

// A row at work: the chains of its tokens.
template <int kTokens>
struct RowStream {
  const std::byte* row;
  const std::byte* ahead;
  Floats8 c[kTokens];
};

// Steps [begin, end) of a row, in which every lane has a block. Format::terms<planes, tokens>(task, x, token, blocks,
// terms) makes the terms of 8 blocks for every token, without the activations' scale.
template <class Format, int kPlanes, int kTokens>
[[gnu::always_inline]] inline void gemv_turn(const LinearTask& task, const GemvOperand& x, int64_t token,
                                             const BlockPlaces& places, int64_t begin, int64_t end,
                                             RowStream<kTokens>& stream) noexcept {
  StepBlocks blocks;
  blocks.first = x.chain.first;
  blocks.ahead = stream.ahead;
  Floats8 c[kTokens];
  for (int t = 0; t < kTokens; ++t) c[t] = stream.c[t];
  const auto step_on = [&](int64_t step) __attribute__((always_inline)) {
    blocks.add = blocks.step = step;
    Floats8 terms[kTokens];
    Format::template terms<kPlanes, kTokens>(task, x, token, blocks, terms);
    for (int t = 0; t < kTokens; ++t) c[t] = fma_8(load_8(x.d + (step * kTokens + t) * kLanes), terms[t], c[t]);
    blocks.ahead += kLanes * places.block_bytes;
  };
  const auto point = [&](int64_t step) __attribute__((always_inline)) {
    for (int lane = 0; lane < kLanes; ++lane)
      blocks.p[lane] = stream.row + step * places.block_bytes + places.at_first[lane];
  };
  int64_t step = begin;
  if constexpr (Format::kStepsTogether == 2) {
    for (; step + 2 <= end; step += 2) {
      point(step);
      step_on(step);
      for (int lane = 0; lane < kLanes; ++lane) blocks.p[lane] += Format::kBlockBytes;
      step_on(step + 1);
    }
  }
  for (; step < end; ++step) {
    point(step);
    step_on(step);
  }
  stream.ahead = blocks.ahead;
  for (int t = 0; t < kTokens; ++t) stream.c[t] = c[t];
}

// The last step of n rows that share it; n may be less than the chain allows.
template <class Format, int kPlanes, int kTokens>
[[gnu::always_inline]] inline void gemv_last(const LinearTask& task, const GemvOperand& x, int64_t token,
                                             const BlockPlaces& places, RowStream<kTokens>* streams, int n) noexcept {
  const GemvChain& chain = x.chain;
  StepBlocks blocks;
  for (int place = 0; place < kLanes; ++place)
    blocks.p[place] = streams[std::min(chain.last_row[place], n - 1)].row + places.at_last[place];
  blocks.first = chain.last;
  blocks.add = 0;
  blocks.step = chain.full_steps;
  blocks.ahead = streams[0].ahead;
  for (int i = 1; i < n; ++i) __builtin_prefetch(streams[i].ahead);
  Floats8 terms[kTokens];
  Format::template terms<kPlanes, kTokens>(task, x, token, blocks, terms);
  for (int i = 0; i < n; ++i) {
    for (int t = 0; t < kTokens; ++t) {
      Floats8& c = streams[i].c[t];
      const Floats8 next =
          fma_8(load_8(x.d + (blocks.step * kTokens + t) * kLanes), permute_8(terms[t], chain.place[i]), c);
      c = choose_8(chain.last_mask, next, c);
    }
  }
}

// Rows row, row + part, .. below row_end by turns: at most kStreamsMax of them.
template <class Format, int kPlanes, int kTokens>
[[gnu::always_inline]] inline void gemv_streams(const LinearTask& task, const GemvOperand& x, int64_t token,
                                                const BlockPlaces& places, int64_t row, int64_t row_end,
                                                int64_t part) noexcept {
  const GemvChain& chain = x.chain;
  RowStream<kTokens> streams[kStreamsMax];
  int n = 0;
  for (int64_t r = row; r < row_end; r += part, ++n) {
    streams[n].row = task.weights + r * task.row_bytes;
    streams[n].ahead = streams[n].row + places.ahead;
    for (int t = 0; t < kTokens; ++t) streams[n].c[t] = zero_8();
  }
  for (int64_t step = 0; step < chain.full_steps; step += places.steps_of_turn) {
    const int64_t end = std::min(step + places.steps_of_turn, chain.full_steps);
    for (int i = 0; i < n; ++i) gemv_turn<Format, kPlanes, kTokens>(task, x, token, places, step, end, streams[i]);
  }
  for (int i = 0; i < n && chain.full_steps < chain.steps; i += chain.rows_of_last_step) {
    gemv_last<Format, kPlanes, kTokens>(task, x, token, places, streams + i, std::min(n - i, chain.rows_of_last_step));
  }
  for (int i = 0; i < n; ++i) {
    const int64_t r = row + i * part;
    for (int t = 0; t < kTokens; ++t) {
      const float dot = tree(streams[i].c[t]);
      task.y.data[(token + t) * task.y.stride + r] = task.bias == nullptr ? dot : dot + task.bias[r];
    }
  }
}

template <class Format, int kPlanes, int kTokens>
void gemv_rows(const LinearTask& task, const GemvOperand& x, int64_t token, int64_t row_begin,
               int64_t row_end) noexcept {
  BlockPlaces places;
  places.block_bytes = Format::block_bytes(task);
  places.steps_of_turn = std::max<int64_t>(1, kTurnBytes / (kLanes * Format::kStepsTogether * places.block_bytes)) *
                         Format::kStepsTogether;
  for (int lane = 0; lane < kLanes; ++lane) {
    places.at_first[lane] = x.chain.first[lane] * places.block_bytes;
    places.at_last[lane] = x.chain.last[lane] * places.block_bytes;
  }
  places.ahead = x.walk.one_by_one ? x.walk.ahead_bytes : std::max(task.row_bytes, x.walk.ahead_bytes);
  // One by one: the rows of a last step, one turn after the other. By parts: a row of each part. One call, since all of
  // it is inlined there.
  const int64_t together = x.chain.rows_of_last_step;
  const int64_t n_streams = together > 1 ? kStreamsMax : kStreams;
  const int64_t part = x.walk.one_by_one ? 1 : (row_end - row_begin + n_streams - 1) / n_streams;
  const int64_t stride = x.walk.one_by_one ? together : 1;
  const int64_t first_end = x.walk.one_by_one ? row_end : row_begin + part;
  for (int64_t i = row_begin; i < first_end; i += stride) {
    const int64_t end = x.walk.one_by_one ? std::min(i + together, row_end) : row_end;
    gemv_streams<Format, kPlanes, kTokens>(task, x, token, places, i, end, part);
  }
}

// The instance for the operand's planes and tokens.
template <class Format>
void gemv_any(const LinearTask& task, const GemvOperand& x, int64_t token, int64_t row_begin,
              int64_t row_end) noexcept {
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
