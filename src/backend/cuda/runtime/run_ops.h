// Ops that run as one kernel each, without others: a table by the op's type, of those that kernels/op_list.h names.
// What is not in it, and in no group of several ops, is borrowed (borrow.h).
#pragma once

#include "backend/cuda/kernels/op_list.h"
#include "backend/cuda/rows/plain_rows.h"
#include "backend/cuda/rows/row_kernels.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/attention/rope.h"
#include "ops/linear/route.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

struct DeviceState;

void run_alone(const DeviceState& state, const ops::Op& op,
               const Queue& queue);  // Error(unsupported) for one that has none

RouteTask route_task(const DeviceState& state, const ops::Route& route);
RopeShape shape_of(const DeviceState& state, const ops::Rope& rope);

}  // namespace assay::backend::cuda
