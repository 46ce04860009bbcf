// An op by its reference, in the host's memory: for a device that borrows it.
#pragma once

#include <cstdint>

#include "ops/plan/host_rows.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan.h"
#include "ops/state/state_store.h"

namespace assay::ops {

// All n_rows of a row op, or all units of an op that keeps a state, for the batch that both were begun with.
inline void run_on_host(const Op& op, const HostRows<float>& rows, StateStore<float>& states, int64_t n_rows) {
  const int32_t state = state_of(op);
  if (state == kNone) return op.record.run(rows, 0, n_rows);
  const int64_t n_units = rows.plan->states[static_cast<size_t>(state)].n_units;
  states.run(state, 0, n_units, [&](const StateRun<float>& at) { op.record.run(rows, at, 0, n_units); });
}

}  // namespace assay::ops
