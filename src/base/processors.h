// Which processors this process may use.
#pragma once

#include <vector>

namespace assay::base {

// Numbers of the processors in the calling thread's affinity mask, one of each physical core first, then their
// siblings. Never empty.
std::vector<int> allowed_processors();

// Physical cores among them, no more than the control group's share of time allows; at least 1.
int physical_cores();

}  // namespace assay::base
