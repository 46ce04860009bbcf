// For processors without kernels of their own: the references do everything.
#include "backend/cpu/sets/kernel_set.h"

namespace assay::backend::cpu {

std::span<const KernelSetParts> sets_of_build() noexcept { return {}; }

}  // namespace assay::backend::cpu
