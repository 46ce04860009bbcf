// Which kernel runs each op of a lowered plan, by the number of tokens: what `assay plan` prints.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/kernel_plan.h"
#include "backend/cuda/schedule/schedule.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

std::vector<ops::KernelUse> kernel_uses(const ops::Plan& plan, const Schedule& schedule, const KernelPlan& kernels,
                                        int32_t i_op);

}  // namespace assay::backend::cuda
