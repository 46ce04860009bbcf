// Queues the kernels of a group (schedule.h) for the batch at work.
#pragma once

#include <vector>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/experts/expert_linear.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/rows/fused.h"
#include "backend/cuda/runtime/device_state.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"

namespace assay::backend::cuda {

// Where a value goes that a group makes: nowhere, if nobody looks.
struct Wanted {
  const DeviceState& state;
  const std::vector<bool>& read;  // per value
  bool observed;                  // everything is written
  float* operator()(ops::ValueId id) const {
    return observed || read[static_cast<size_t>(id)] ? state.value(id) : nullptr;
  }
};

void run_group(const DeviceState& state, const FusionGroup& group, const Wanted& wanted, const Queue& queue);

// What the kernels of a group are told, but for integers; decode's kernels are told the same.
NormTask norm_task(const DeviceState& state, const FusionGroup& norm, const Wanted& wanted);
HeadsTask heads_task(const DeviceState& state, const FusionGroup& heads, const Wanted& wanted);
AttentionTask attention_task(const DeviceState& state, const FusionGroup& attention);
ExpertTask expert_task(const DeviceState& state, const ops::ExpertLinear& experts);
LinearTask linear_task(const DeviceState& state, const ops::Linear& linear);

}  // namespace assay::backend::cuda
