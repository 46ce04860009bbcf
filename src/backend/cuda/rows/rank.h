// The best logits of rows, for samplers that begin with the best one or the k best: only these leave the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/rows/gather.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/plan/executor.h"

namespace assay::backend::cuda {

inline constexpr int64_t kRankedMax = 256;
inline constexpr int32_t kNotRanked = INT32_MIN;  // a token that no ranking leaves

// Keys that wait between the passes over n_rows rows of `width` logits, of which the k best are wanted: so many words
// of 64 bits. Where k is 1, zeros before a ranking and after it.
int64_t rank_scratch_words(int64_t n_rows, int64_t width, int64_t k);

// Of a batch of one token a row, where the next run may begin before the host has seen this one's logits. The batch
// becomes that of the best tokens, each at its next position (token 0 where a row has none), and the logits are copied,
// for the next run overwrites them: to one of two places, for even positions and for odd ones.
struct Handover {
  int32_t* tokens = nullptr;  // null: there is none
  int32_t* positions = nullptr;
  TokenTile* tiles = nullptr;
  float* logits = nullptr;  // [2, n_rows_max, width]
  int64_t n_rows_max = 0;
  uint32_t* round = nullptr;  // of a shard: the run's number (gather.h), which becomes the next one's
  SumsWords sums = {};        // of a shard: what this run has read, to be set to kNoSum again
};

// The rows of a table that belong to a batch's tokens, as embed() makes them by eights (kernels/unpack_table.h).
struct TokenRows {
  Matrix table;
  float scale = 1.0f;
  float* y = nullptr;  // [n_rows, table.cols]; null: they are not made
};

// Which entries of a row count: bit i % 32 of word i / 32 of the row's place; of a row without one (kNone) all. May be
// the host's page-locked memory; it is read before the kernels ahead have ended, so it must be there when they are
// queued.
struct AllowedWords {
  const int32_t* places = nullptr;  // [n_rows]; null: every entry of every row counts
  const uint32_t* words = nullptr;  // [places, n_words]
  int32_t n_words = 0;              // that a row's width needs
};

struct RankInputs {
  const float* logits = nullptr;  // [n_rows, width]
  int64_t n_rows = 0, width = 0;
  int64_t k = 1;  // from 1 to kRankedMax
  AllowedWords allowed = {};
};

struct RankOutputs {
  // [n_rows, k], with a handover [2, n_rows_max, k]: descending, the lower token first among equals, token kNone behind
  // the last that is above minus infinity. A row in which a NaN or +infinity counts: kNone alone. May be the host's
  // page-locked memory: the first of a row is written last and in one piece, so that who finds another token there than
  // kNotRanked, which it put there before, finds the whole row.
  ops::RankedLogit* best = nullptr;
  Handover next;        // only where k is 1
  TokenRows rows = {};  // of the next run's tokens, which then begins without a kernel for them; only with a handover
};

void rank_rows(const RankInputs& in, uint64_t* scratch, const RankOutputs& out, const Queue& queue);

}  // namespace assay::backend::cuda
