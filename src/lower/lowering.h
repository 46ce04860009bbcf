// A plan made ready for a device that runs it by fusion groups: all that is the same on every such device, computed
// once.
//
//   Plan ──► Links ──► Twins ──► groups, in order ──► steps (the device's) ──► lifetimes ──► places in one arena
//            who reads  integers  what one kernel       what it counts by        lifetimes.h   placement.h
//            whom       of rows   runs (device.h)
//
// The CPU, whose threads share out ops and meet between steps, takes the parts of this picture but for the groups.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lower/device.h"
#include "lower/fusion.h"
#include "lower/lifetimes.h"
#include "lower/links.h"
#include "lower/twins.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::lower {

struct Lowering {
  Links links;
  Twins twins;
  std::vector<FusionGroup> groups;  // in the order in which they run
  std::vector<bool> read_outside;   // per value: whether a group other than its own reads its floats
};
Lowering lower(const ops::Plan& plan, const ops::ExecutorOptions& options, const DeviceLimits& device);

// step_of_group: where the device runs each group, in a step of its own or with its neighbours; ascending.
Steps find_steps(const ops::Plan& plan, const Lowering& lowering, std::span<const int32_t> step_of_group);

}  // namespace assay::lower
