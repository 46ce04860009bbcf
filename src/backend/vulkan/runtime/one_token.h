// Groups that are one step where a run has one token, in texts of one segment: heads and the attention over what they
// store (attention/attention.comp).
//
//   groups   heads | attention        one token: [heads, attention]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/vulkan/runtime/device_state.h"
#include "lower/lowering.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::vulkan {

struct OneStep {
  int32_t first = 0;  // of the lowering's groups, the heads; the next is the attention
  int32_t attention = ops::kNone;
  int32_t last() const noexcept { return first + 1; }
};

// Ascending.
std::vector<OneStep> find_one_steps(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                    const lower::Lowering& lowering);
// Per group of the lowering: the step in which its values live; groups of a OneStep have one.
std::vector<int32_t> find_step_of_group(size_t n_groups, std::span<const OneStep> one_steps);
// Whether the run that the state has begun is such a run.
bool has_one_steps(const DeviceState& state);

}  // namespace assay::backend::vulkan
