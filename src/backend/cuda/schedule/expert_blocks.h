// Where a plan's experts stand as decode of one token runs them in two kernels (experts/expert_token.h): fusion groups
//
//   first, first + 1   two products of one row by the same routes
//   first + 2          the gate of what they make
//   first + 3, + 4     the product by the same routes of what it leaves, and the sum over the ranks
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/expert_table.h"
#include "lower/lowering.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

// Whether `second` multiplies the same rows by the same routes as `first`: one kernel for one token.
bool are_by_one_route(const ops::Plan& plan, const lower::FusionGroup& first, const lower::FusionGroup* second);

inline constexpr int32_t kExpertBlockGate = 2, kExpertBlockDown = 3, kExpertBlockSum = 4;  // behind the first
// The row of the block that begins with a group; null: none does.
const ExpertTokenRow* find_expert_block(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                        const lower::Lowering& lowering, int32_t first);

}  // namespace assay::backend::cuda
