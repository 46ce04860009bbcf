// Queues the kernels of a decode group (decode_groups.h) for a batch of one token.
#pragma once

#include "backend/cuda/runtime/device_state.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

// observed: every value of the group's ops is written, also where no other group reads it.
void run_decode_group(const DeviceState& state, const DecodeGroup& group, bool observed, const Queue& queue);

}  // namespace assay::backend::cuda
