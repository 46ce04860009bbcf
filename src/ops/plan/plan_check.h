// What a backend asks of a Plan before it takes any memory.
#pragma once

#include <vector>

#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::ops {

// Throws Error(unsupported) for a plan that the kernels cannot run, Error(bad_request) for options that make no sense.
void check_plan(const Plan& plan, const ExecutorOptions& options);

// Weights that kernels want as f32 whatever the file has: norms and biases, each once.
std::vector<WeightId> small_weights_of(const Plan& plan);

}  // namespace assay::ops
