// A batch as every executor checks and counts it before it touches anything.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/plan/executor.h"

namespace assay::ops {

// Consecutive tokens of one sequence.
struct TokenRun {
  int64_t begin = 0, n = 0;
  int64_t sequence = 0, position = 0;  // of its first token
};

struct BatchShape {
  std::vector<int64_t> selected;  // tokens whose logits are wanted, ascending
  std::vector<TokenRun> token_runs;
  std::vector<int64_t> n_positions;  // per sequence, once the batch has run

  void reserve(const ExecutorOptions& options);  // so that check_batch allocates nothing
};

// n_positions: per sequence, before the batch. Throws Error(bad_request) for what the executor was not made for.
void check_batch(const Batch& batch, const ExecutorOptions& options, std::span<const int64_t> n_positions,
                 BatchShape& shape);
// Of a plan that is not causal: Error(bad_request) where a sequence is not run whole.
void check_whole(const BatchShape& shape);
void check_sequence(int64_t sequence, const ExecutorOptions& options);

}  // namespace assay::ops
