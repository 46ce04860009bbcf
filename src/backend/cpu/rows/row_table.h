// The CPU's kernels of ops that work row by row, as a table: an op's type, and the function that takes some of its
// rows. An op without a row in it runs its scalar reference (ops/plan/record.h), with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lower/views.h"
#include "ops/plan/plan.h"

namespace assay::backend::cpu {

struct RunState;

// Rows [begin, end) of the op, on a thread with that scratch.
using RowKernel = void (*)(const RunState& state, const ops::Op& op, int64_t begin, int64_t end,
                           std::byte* scratch) noexcept;

// views: of a slice or a join it says what is left to be copied.
RowKernel row_kernel_of(const ops::Op& op, const lower::Views& views) noexcept;
bool is_borrowed(RowKernel kernel) noexcept;     // it runs the reference
bool copies_nothing(RowKernel kernel) noexcept;  // of values that lie where they are wanted

}  // namespace assay::backend::cpu
