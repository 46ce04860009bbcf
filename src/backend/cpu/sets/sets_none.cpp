// For processors without kernels of their own: the references do everything.
#include "backend/cpu/sets/set_functions.h"

namespace assay::backend::cpu {

std::span<const SetFunctions> sets_of_build() noexcept { return {}; }

}  // namespace assay::backend::cpu
