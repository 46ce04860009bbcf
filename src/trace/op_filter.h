// Which ops a trace is of: those whose whole name an expression matches, in a range of layers.
#pragma once

#include <string_view>
#include <vector>

#include "assay/trace.h"
#include "ops/plan/plan.h"

namespace assay::trace {

// One flag for each op of the plan. Error(bad_request) for an expression that PCRE2 refuses or gives up on, and where
// nothing is chosen.
std::vector<bool> chosen_ops(const ops::Plan& plan, const TraceOptions& options);

}  // namespace assay::trace
