// What a record's work function sees: the shape of a run and how its executor keeps weights and cache.
#pragma once

#include <cstdint>

#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::ops {

// n_sequences sequences at a time, each with n_tokens tokens after n_past others; logits of the last n_outputs of them.
struct RunShape {
  int64_t n_tokens = 1, n_past = 0, n_outputs = 1, n_sequences = 1;
};

class WorkScope {
 public:
  // Both must outlive it.
  WorkScope(const Plan& plan, const ExecutorOptions& options, const RunShape& shape)
      : plan_(plan), options_(options), shape_(shape) {}

  const Plan& plan() const noexcept { return plan_; }
  const RunShape& shape() const noexcept { return shape_; }
  const ExecutorOptions& options() const noexcept { return options_; }
  int64_t n_rows(ValueId value) const {
    return shape_.n_sequences *
           plan_.values[static_cast<size_t>(value)].domain.n_rows(shape_.n_tokens, shape_.n_outputs);
  }
  int64_t width(ValueId value) const { return plan_.values[static_cast<size_t>(value)].width; }
  int64_t weight_bytes(WeightId weight) const {
    return weight == kNone ? 0 : static_cast<int64_t>(plan_.weights[static_cast<size_t>(weight)].view.data.size());
  }
  int64_t state_bytes(int32_t state) const {  // of the sequences of the run
    return shape_.n_sequences * plan_.states[static_cast<size_t>(state)].n_floats() *
           static_cast<int64_t>(sizeof(float));
  }
  bool multiplies_integers(WeightId weight) const;  // in the executor's mode, by the weight's format

 private:
  const Plan& plan_;
  const ExecutorOptions& options_;
  const RunShape& shape_;
};

}  // namespace assay::ops
