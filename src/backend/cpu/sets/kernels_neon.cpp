// The small kernels built for NEON.
#include "backend/cpu/sets/simd_kernels.h"
#include "backend/cpu/sets/simd_table.h"

namespace assay::backend::cpu {

void add_neon_kernels(Kernels& kernels) noexcept { fill_table(kernels); }

}  // namespace assay::backend::cpu
