// Which of the CPU's kernels take values whose runs or rows lie apart (lower/views.h).
#pragma once

#include "lower/views.h"
#include "ops/plan/plan.h"

namespace assay::backend::cpu {

// The plan must outlive them.
lower::ViewRules view_rules(const ops::Plan& plan);

}  // namespace assay::backend::cpu
