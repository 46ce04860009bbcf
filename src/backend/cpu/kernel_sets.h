// For tests: the kernel sets that this machine can run.
#pragma once

#include <vector>

#include "backend/cpu/linear.h"

namespace assay::backend::cpu {

inline std::vector<KernelSet> fast_kernel_sets() {
  std::vector<KernelSet> sets;
  if (best_kernel_set() != KernelSet::reference) sets.push_back(KernelSet::avx2);
  if (best_kernel_set() == KernelSet::avx512) sets.push_back(KernelSet::avx512);
  return sets;
}

}  // namespace assay::backend::cpu
