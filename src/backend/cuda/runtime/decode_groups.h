// Which units of a Schedule decode of one token runs as one kernel. Made once per executor; no bit depends on it.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/runtime/schedule.h"

namespace assay::backend::cuda {

// Groups of the schedule's units, in their order, every unit in one; sets also which values other groups read.
void find_decode_groups(const ops::Plan& plan, const ops::ExecutorOptions& options, Schedule& schedule);

}  // namespace assay::backend::cuda
