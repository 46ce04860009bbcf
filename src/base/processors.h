// Which processors this process may use.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace assay::base {

// Numbers of the processors in the calling thread's affinity mask, one of each physical core first, then their
// siblings. Never empty.
std::vector<int> allowed_processors();

// Physical cores among them, no more than the control group's share of time allows; at least 1.
int physical_cores();

// The threads of a pool for which a caller asks so many, 0: one a physical core. Error(bad_request) for fewer.
int pool_threads(int n_asked);

// Both for a given mask and for a machine whose /sys and /proc lie under `root`: "" is this one.
std::vector<int> cores_first(std::span<const int> processors, const std::string& root);
int physical_cores(std::span<const int> processors, const std::string& root);

}  // namespace assay::base
