// The small kernels built for AVX2, FMA and F16C.
#include "backend/cpu/sets/simd_kernels.h"
#include "backend/cpu/sets/simd_table.h"

namespace assay::backend::cpu {

void add_avx2_kernels(KernelFunctions& kernels) noexcept { fill_table(kernels); }

}  // namespace assay::backend::cpu
