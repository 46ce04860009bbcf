// Ops that this device has no kernel for: their reference (ops/plan/record.h) runs on the host.
//
//   device   a, b  --copy-->  pinned memory  --reference-->  pinned memory  --copy-->  y   device
//            (stream)         wait                                          (stream)
//
// What such an op keeps of a sequence (Role::state) stays on the host, with its checkpoints (others': device_states.h).
// One that reads the KV cache gets its layer's rows copied too.
// A plan with one of them runs no graphs and nothing ahead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/schedule/schedule.h"
#include "lower/small_weights.h"
#include "ops/attention/rope_table.h"
#include "ops/plan/batch_shape.h"
#include "ops/plan/executor.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/plan.h"
#include "ops/state/state_store.h"

namespace assay::backend::cuda {

struct DeviceState;

class Borrower {
 public:
  Borrower(const ops::Plan& plan, const ops::ExecutorOptions& options, const Schedule& schedule);

  bool any() const noexcept { return any_; }
  bool is_borrowed(int32_t op) const noexcept { return is_borrowed_[static_cast<size_t>(op)] != 0; }
  size_t bytes() const noexcept { return staging_.size(); }
  ops::StateStore<float>& states() noexcept { return states_; }
  const ops::StateStore<float>& states() const noexcept { return states_; }

  // A batch, which outlives its run.
  void begin(const ops::Batch& batch, const ops::BatchShape& shape, std::span<const ops::RopeTable> rope_tables);
  void run(const DeviceState& state, int32_t op);

 private:
  void run_cached(const DeviceState& state, const ops::Op& op);  // of Role::cached

  const ops::Plan& plan_;
  std::vector<uint8_t> is_borrowed_;  // per op
  bool any_ = false;
  ops::StateStore<float> states_;
  PinnedBuffer staging_;  // of one op's values at a time
  lower::SmallWeights small_;
  std::vector<float*> values_;  // per value: those of the op at work
  ops::HostRows<float> rows_;
  const ops::BatchShape* shape_ = nullptr;
};

}  // namespace assay::backend::cuda
