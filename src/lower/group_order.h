// The order in which a device runs the groups of a plan.
#pragma once

#include <vector>

#include "lower/fusion.h"

namespace assay::lower {

// By the first op of each group, but none before what it reads is made; a twin right after its value.
// Error(unsupported) where an op waits for a value that no op writes.
std::vector<FusionGroup> in_order(const ops::Plan& plan, const Links& links, const Twins& twins,
                                  std::vector<FusionGroup> groups);

}  // namespace assay::lower
