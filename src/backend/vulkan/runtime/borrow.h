// Ops that this device has no kernel for: their reference runs on the host, on the threads of a pool, between copies.
//
//   device   a, b  --copy-->  host memory  --reference-->  host memory  --copy-->  y   device
//
// What such an op keeps of a sequence (Role::state) stays on the host, with its checkpoints; the KV cache stays on the
// device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/vulkan/runtime/device_state.h"
#include "base/thread_pool.h"
#include "lower/small_weights.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/plan/host_rows.h"
#include "ops/rows/select_outputs.h"
#include "ops/state/state_store.h"

namespace assay::backend::vulkan {

class Borrower {
 public:
  // All must outlive it. Error(unsupported) for an op that needs other shards of a model.
  Borrower(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::SmallWeights& small,
           base::ThreadPool& pool);

  ops::StateStore<float>& states() noexcept { return states_; }
  const ops::StateStore<float>& states() const noexcept { return states_; }
  // A batch, which outlives its run as the shape does.
  void begin(const ops::Batch& batch, const ops::BatchShape& shape, std::span<const ops::RopeTable> rope_tables);
  // After what was recorded has ended.
  void run(DeviceState& state, int32_t op);

 private:
  float* rows_of(ops::ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const tensor::TensorView& weight(ops::WeightId id) const { return plan_.weights[static_cast<size_t>(id)].view; }
  const float* small(ops::WeightId id) const { return rows_.small(id); }
  // All that the sequence has stored there, position by position.
  std::vector<float> read_back(DeviceState& state, const CacheRows& rows, int32_t sequence) const;
  void run(DeviceState& state, const ops::Linear& op);
  void run(DeviceState& state, const ops::ExpertLinear& op);
  void run(DeviceState& state, const ops::Attention& op);
  void run(DeviceState& state, const ops::KvStore& op);
  void run(DeviceState& state, const ops::SelectOutputs& op);
  void run_cached(DeviceState& state, const ops::Op& op);  // of Role::cached

  const ops::Plan& plan_;
  const ops::ExecutorOptions& options_;
  base::ThreadPool& pool_;
  ops::StateStore<float> states_;
  const lower::SmallWeights& small_;
  std::vector<std::vector<float>> memory_;  // per value, of the op at work
  std::vector<float*> values_;
  ops::HostRows<float> rows_;
  const ops::BatchShape* shape_ = nullptr;
};

}  // namespace assay::backend::vulkan
