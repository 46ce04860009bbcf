// For tests: the kernel sets that this machine can run.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cpu/linear/linear.h"

namespace assay::backend::cpu {

inline std::vector<Kernels> fast_kernel_sets() { return {kernel_sets().begin() + 1, kernel_sets().end()}; }

// As a part of a test's name.
inline std::string test_name(Kernels set) {
  std::string text(name(set));
  std::ranges::replace(text, '-', '_');
  return text;
}

}  // namespace assay::backend::cpu
