// The matrix-matrix kernels of each instruction set: a panel of rows is unpacked once into scratch and all tokens run against it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear.h"

namespace assay::backend::cpu {

inline constexpr int64_t kGemmRowStep = 32;  // rows of a tile
inline constexpr int64_t kPanelBytes = 192 * 1024;  // what a panel may take of the second-level cache

struct GemmKernel {
  void (*run)(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept = nullptr;
  size_t (*scratch_bytes)(const LinearTask& task) noexcept = nullptr;
};

// Without run where there is no kernel for the format. Formats with blocks of 32.
GemmKernel gemm_a32_avx512(tensor::DType dtype) noexcept;
// Superblocks of 256.
GemmKernel gemm_a256_avx512(tensor::DType dtype) noexcept;

}  // namespace assay::backend::cpu
