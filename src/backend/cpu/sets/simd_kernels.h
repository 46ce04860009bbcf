// Fast kernels by instruction set; each function overwrites the slots of the table that its set fills. Built with their
// own flags, so they may be called only where the processor has the set.
#pragma once

#include "backend/cpu/sets/kernels.h"

namespace assay::backend::cpu {

void add_avx2_kernels(KernelFunctions& kernels) noexcept;
void add_avx512_kernels(KernelFunctions& kernels) noexcept;
void add_neon_kernels(KernelFunctions& kernels) noexcept;

}  // namespace assay::backend::cpu
