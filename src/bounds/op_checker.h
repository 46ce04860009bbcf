// Watches a run and judges every op: locally (float64 from the op's own observed inputs, against
// its bound) and cumulatively (against a float64 chain of its own that starts at the tokens and
// never sees the run's numbers). Works for an Executor, as its observer, and for a dump, whose
// records are fed to it. Memory: the values that are still needed, and K and V, in float64, twice.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "assay/verify.h"
#include "base/thread_pool.h"
#include "bounds/local_op.h"
#include "ops/plan/executor.h"

namespace assay::bounds {

// The first op that is out of its bound, with everything that the dictionary needs to find the
// cause. Owns copies.
struct FailedOp {
  int32_t i_op = -1;  // index into Plan::ops
  int64_t i_batch = 0;
  std::vector<double> a, b,
      found;  // the op's observed inputs and output; of the rows of the output
  int64_t n_rows = 0, a_width = 0, b_width = 0, width = 0;
  std::vector<int32_t> tokens, positions, sequences;  // of those rows
  std::map<int, KvHistory> history;                   // of the layer of the cache that it reads, by sequence
  std::map<int, std::vector<double>>
      state_before;  // CausalConv only: what it kept of each sequence before this batch (ops/state/causal_conv.h)
  std::vector<std::map<int, int64_t>> batch_starts;  // per batch so far: sequence -> first position
  Expected expected;
};

// A token's choice of experts, or of keys, that rounding decided.
struct RoutingTie {
  int32_t i_op = -1;
  int32_t position = 0, token = 0;
  RouteTie tie;
};

struct CheckerOptions {
  bool cumulative = true;
  bool stop_at_first = false;  // ops after the first failure are not judged
};

class OpChecker final : public ops::OpObserver {
 public:
  OpChecker(const ops::Plan& plan, const Declared& declared, int64_t n_ctx, int n_sequences, base::ThreadPool& pool,
            CheckerOptions options = {});
  ~OpChecker() override;

  void begin(const ops::Batch& batch);  // before each run
  bool wants(const ops::Op& op) override;
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override;
  // After each run. An op that was not announced (a dump that lacks it) is computed in its place
  // from what was, and its rounding goes into the bounds of the ops that follow.
  void end();

  const std::vector<OpFigures>& figures()
      const noexcept;                                  // one per op of the plan that was announced, in the plan's order
  const FailedOp* first_failure() const noexcept;      // nullptr: none
  const std::optional<Place>& place() const noexcept;  // of the first failure: its worst element
  const std::vector<RoutingTie>& ties()
      const noexcept;  // of all runs; those of ops that were out of their bounds are left out
  std::span<const double> chain_logits()
      const noexcept;  // of the last run's outputs: the float64 chain's [n_outputs, vocab_size]

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::bounds
