// What a run of a plan has to do at least: the bytes it reads and its multiply-adds, counted from the plan alone. Benchmarks hold their
// times against these.
#pragma once

#include <cstdint>

#include "assay/bench.h"
#include "assay/context.h"
#include "ops/plan.h"

namespace assay::engine {

// n_sequences sequences at a time, each with n_tokens tokens after n_past others; logits of the last n_outputs of them.
struct RunShape {
  int64_t n_tokens = 1, n_past = 0, n_outputs = 1, n_sequences = 1;
};

class WorkCounter {
 public:
  // The plan must outlive it. options: as a context gives them.
  WorkCounter(const ops::Plan& plan, const ContextOptions& options) : plan_(plan), options_(options) {}

  Work of_op(const ops::Op& op, const RunShape& shape) const;
  Work of_run(const RunShape& shape) const;
  // Of one repetition of the test: its prompts in chunks of n_ubatch, one sequence after the other, then its single tokens together.
  Work of_test(const BenchTest& test) const;

 private:
  Work of_linear(const ops::Linear& op, const RunShape& shape) const;
  Work of_attention(const ops::Attention& op, const RunShape& shape) const;
  int64_t n_rows(ops::ValueId value, const RunShape& shape) const;
  int64_t weight_bytes(ops::WeightId weight) const;

  const ops::Plan& plan_;
  const ContextOptions& options_;
};

}  // namespace assay::engine
