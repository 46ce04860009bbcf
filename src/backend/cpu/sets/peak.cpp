// See peak.h.
#include "backend/cpu/sets/peak.h"

#include "backend/cpu/sets/kernel_set.h"

namespace assay::backend::cpu {

PeakLoops peak_loops(Kernels set) noexcept {
  const KernelSetParts* functions = functions_of(set);
  return functions != nullptr && functions->peak_loops != nullptr ? functions->peak_loops() : PeakLoops{};
}

}  // namespace assay::backend::cpu
