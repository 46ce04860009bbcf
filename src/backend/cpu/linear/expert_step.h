// The products of experts (ops/linear/expert_linear.h) on the CPU: pairs of a token and a rank are put in the order of
// their experts, each expert's rows of weights are then multiplied with its own pairs by the kernels of ordinary
// products, and the results go back to their places.
//
//   tokens x ranks  --gather, quantise-->  pairs by expert  --LinearTask an expert-->  results by expert  --scatter-->  tokens x ranks
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/cpu/linear/linear_table.h"
#include "backend/cpu/runtime/run_state.h"
#include "base/aligned_buffer.h"
#include "ops/linear/expert_linear.h"
#include "ops/plan/executor.h"

namespace assay::backend::cpu {

class ExpertSteps {
 public:
  // Takes memory for the largest of the plan's expert products. state must outlive it.
  ExpertSteps(const RunState& state, const ops::ExecutorOptions& options);

  void run(const ops::ExpertLinear& op);
  size_t bytes() const noexcept { return memory_.size(); }
  size_t scratch_bytes() const noexcept { return scratch_bytes_; }  // of a thread
  const LinearChoice& choice_of(const ops::ExpertLinear& op) const { return choices_.at(&op); }

 private:
  // The task of one expert with as many tokens as there can be.
  LinearTask task_of(const ops::ExpertLinear& op) const;
  void sort_pairs(const ops::ExpertLinear& op, int64_t n_pairs);
  LinearTask expert_task(const ops::ExpertLinear& op, int64_t expert) const;

  const RunState& state_;
  const ops::ExecutorOptions options_;
  std::map<const ops::ExpertLinear*, LinearChoice> choices_;  // the plan's
  size_t scratch_bytes_ = 0;
  base::AlignedBuffer memory_;
  size_t x_bytes_ = 0, y_bytes_ = 0;
  float *x_ = nullptr, *y_ = nullptr;  // rows of pairs
  std::byte* integers_ = nullptr;
  quant::Activations quantised_;
  std::vector<int32_t> pairs_;       // by expert, then ascending
  std::vector<int32_t> first_pair_;  // per expert, and the number of all at the end
  std::vector<int32_t> used_;        // experts with pairs
};

}  // namespace assay::backend::cpu
