// Which kernel runs each op of a lowered plan: what `assay plan` prints.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/linear/expert_step.h"
#include "backend/cpu/runtime/schedule.h"
#include "backend/cpu/runtime/steps.h"
#include "ops/plan/executor.h"

namespace assay::backend::cpu {

// What an executor made of its plan.
struct Lowered {
  const ops::Plan& plan;
  Kernels set;
  const Schedule& schedule;
  const std::vector<LinearStep>& linear_steps;  // one per step, empty where it is none
  const ExpertSteps& experts;
};

std::vector<ops::KernelUse> kernel_uses(const Lowered& lowered, int32_t i_op);

}  // namespace assay::backend::cpu
