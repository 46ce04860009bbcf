// The CPU's kernels of ops that keep a state, as a table: as row_table.h has those of ops that work row by row. An op
// without a row in it runs its scalar reference, with the same bits.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"
#include "ops/state/state.h"

namespace assay::backend::cpu {

struct RunState;

// Units [begin, end) of the op over consecutive tokens of a sequence.
using StateKernel = void (*)(const RunState& state, const ops::Op& op, const ops::StateRun<float>& at, int64_t begin,
                             int64_t end) noexcept;

StateKernel state_kernel_of(const ops::Op& op) noexcept;
bool is_borrowed(StateKernel kernel) noexcept;  // it runs the reference

}  // namespace assay::backend::cpu
