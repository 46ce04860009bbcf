// Queues the kernels of a unit (schedule.h) for the batch at work.
#pragma once

#include "backend/cuda/device_state.h"
#include "backend/cuda/queue.h"

namespace assay::backend::cuda {

// observed: every value of the unit's ops is written, also where no other unit reads it.
void run_unit(const DeviceState& state, const Unit& unit, bool observed, const Queue& queue);

}  // namespace assay::backend::cuda
