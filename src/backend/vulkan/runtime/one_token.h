// Groups that are one step where a run has one row of them: products make the twin that they read themselves, or the
// gate behind them (linear/linear_one.comp). What many workgroups compute again and again costs less than a step that
// others wait for, where rows are not too long.
//
//   groups   heads | attention                 one token: [heads, attention], in texts of one segment
//   groups   quantise | linears                one token: [quantise, linears]
//   groups   linears | gate | linears          one token: [linears, gate] | [linears]
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/vulkan/device/instance.h"
#include "backend/vulkan/runtime/device_state.h"
#include "lower/lowering.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::vulkan {

inline constexpr std::string_view kOneToken = "linear_one";

struct OneStep {
  int32_t first = 0, last = 0;     // groups of the lowering, both of them too
  int32_t linears = 0;             // the group of the products
  bool makes_twin = false;         // that they read
  int32_t gate = ops::kNone;       // the op behind them
  int32_t attention = ops::kNone;  // the op behind heads: then there are no products
};

// Ascending, none with a group of another.
std::vector<OneStep> find_one_steps(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                    const lower::Lowering& lowering, const Facts& device);
// Per group of the lowering: the step in which its values live; groups of a OneStep have one.
std::vector<int32_t> find_step_of_group(size_t n_groups, std::span<const OneStep> one_steps);
// Whether the run that the state has begun has the step; and records it.
bool has_one_step(const DeviceState& state, const OneStep& step);
void record_one_step(DeviceState& state, const OneStep& step);

}  // namespace assay::backend::vulkan
