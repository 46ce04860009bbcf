// See lowering.h.
#include "lower/lowering.h"

#include "base/index.h"

namespace assay::lower {

Lowering lower(const ops::Plan& plan, const ops::ExecutorOptions& options, const DeviceLimits& device) {
  Lowering made{Links(plan), find_twins(plan, options, device.experts_read_twins, device.reads_floats), {}, {}};
  made.groups = find_groups(plan, made.links, made.twins, device);
  made.read_outside = find_read_outside(plan, made.links, made.twins, made.groups);
  return made;
}

Steps find_steps(const ops::Plan& plan, const Lowering& lowering, std::span<const int32_t> step_of_group) {
  Steps steps{std::vector<int32_t>(plan.ops.size(), 0), std::vector<int32_t>(lowering.twins.list.size(), 0),
              step_of_group.empty() ? 0 : step_of_group.back() + 1};
  for (size_t i = 0; i < lowering.groups.size(); ++i) {
    const FusionGroup& group = lowering.groups[i];
    for (const int32_t op : group.ops) steps.of_op[at(op)] = step_of_group[i];
    const bool makes_twin = group.twin != ops::kNone && !reads_twin(group.kind);
    if (makes_twin) steps.of_twin[at(group.twin)] = step_of_group[i];
  }
  return steps;
}

}  // namespace assay::lower
