// See one_token.h.
#include "backend/vulkan/runtime/one_token.h"

#include <algorithm>

#include "backend/vulkan/runtime/groups.h"
#include "backend/vulkan/runtime/kernels.h"
#include "base/index.h"

namespace assay::backend::vulkan {

std::vector<OneStep> find_one_steps(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                    const lower::Lowering& lowering) {
  std::vector<OneStep> steps;
  for (int32_t g = 0; at(g) + 1 < lowering.groups.size(); ++g) {
    const std::vector<int32_t>& next = lowering.groups[at(g) + 1].ops;
    if (next.size() == 1 && takes_attention(plan, lowering.groups[at(g)], next.front()) &&
        !kernels_for(plan, options, plan.ops[at(next.front())]).empty())
      steps.push_back({g, next.front()});
  }
  return steps;
}

std::vector<int32_t> find_step_of_group(size_t n_groups, std::span<const OneStep> one_steps) {
  std::vector<int32_t> steps;
  int32_t next = 0;
  for (int32_t g = 0; at(g) < n_groups; ++g) {
    const bool is_last = std::ranges::binary_search(one_steps, g, {}, &OneStep::last);
    steps.push_back(is_last ? next - 1 : next++);
  }
  return steps;
}

bool has_one_steps(const DeviceState& state) { return state.n_tokens() == 1 && state.n_segments() == 0; }

}  // namespace assay::backend::vulkan
