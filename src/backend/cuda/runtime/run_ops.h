// Ops that run as one kernel each, without others: started by the rows of kernels/op_table.h that the plan was resolved
// to. What has none, and is in no group of several ops, is borrowed (borrow.h).
#pragma once

#include "backend/cuda/rows/plain_rows.h"
#include "backend/cuda/rows/row_kernels.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/attention/rope.h"
#include "ops/linear/route.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

struct DeviceState;

void run_alone(const DeviceState& state, int32_t i_op, const Queue& queue);

RouteTask route_task(const DeviceState& state, const ops::Route& route);
RopeShape shape_of(const DeviceState& state, const ops::Rope& rope);

}  // namespace assay::backend::cuda
