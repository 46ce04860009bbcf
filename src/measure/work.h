// What a run of a plan has to do at least: the bytes it reads and its multiply-adds, counted from the plan alone.
// Benchmarks hold their times against these.
#pragma once

#include <cstdint>

#include "assay/bench.h"
#include "assay/context.h"
#include "ops/plan/work.h"

namespace assay::measure {

using ops::RunShape;

class WorkCounter {
 public:
  // The plan must outlive it. options: as a context gives them.
  WorkCounter(const ops::Plan& plan, const ContextOptions& options);

  Work of_op(const ops::Op& op, const RunShape& shape) const;
  Work of_run(const RunShape& shape) const;
  // Of one repetition of the test: its prompts in chunks of n_ubatch, one sequence after the other, then its single
  // tokens together.
  Work of_test(const BenchTest& test) const;

 private:
  const ops::Plan& plan_;
  const ContextOptions& options_;
  ops::ExecutorOptions executor_;  // what of them counts: modes and cache types
};

}  // namespace assay::measure
