// A model's kernels on a GPU that need not be here.
#pragma once

#include <string_view>
#include <vector>

#include "assay/context.h"
#include "ops/plan/executor.h"

namespace assay::engine {

struct OnCard {
  ContextOptions options;                            // resolved, of backend cuda
  std::vector<std::vector<ops::KernelUse>> kernels;  // per op of the model's plan
};
// Errors as those of a context and of backend::cuda::kernels_on_card().
OnCard on_card(const Model& model, const ContextOptions& asked, std::string_view card);

}  // namespace assay::engine
