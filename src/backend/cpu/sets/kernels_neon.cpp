// The small kernels built for NEON.
#include "backend/cpu/sets/simd_kernels.h"
#include "backend/cpu/sets/simd_table.h"

namespace assay::backend::cpu {

void add_neon_kernels(KernelFunctions& kernels) noexcept { fill_table(kernels); }

}  // namespace assay::backend::cpu
