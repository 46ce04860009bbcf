// The kernels of one token and rows of blocks of 32 that take blocks as they lie, several rows together.
#pragma once

#include "backend/cpu/gemm/gemm.h"

namespace assay::backend::cpu {

// Without run where there is none for the format or the number of its columns.
GemmKernel gemv_short_avx512(const LinearTask& task) noexcept;
GemmKernel gemv_long_avx512(const LinearTask& task) noexcept;

}  // namespace assay::backend::cpu
