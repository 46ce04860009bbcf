// The two types of weights of mode `fast`: how floats are rounded to them, and their products on the tensor cores.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/tiles/mma_steps.cuh"

namespace assay::backend::cuda {

// rounded: two floats, to nearest even, side by side. multiply: 16 rows of weights x 8 columns, 16 elements of K, added
// to the sums.
struct FastF16 {
  __device__ static uint32_t rounded(float a, float b) {
    const __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  __device__ static void multiply(float (&sum)[4], const uint32_t (&w)[4], uint32_t x0, uint32_t x1) {
    add_halves(w, x0, x1, sum);
  }
};
struct FastBF16 {
  __device__ static uint32_t rounded(float a, float b) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  __device__ static void multiply(float (&sum)[4], const uint32_t (&w)[4], uint32_t x0, uint32_t x1) {
    add_bf16(w, x0, x1, sum);
  }
};

// 16 bytes of weights, whose neighbours are wanted soon, from global to shared memory; without `inside` zeros.
__device__ inline void copy_weights(uint32_t to, const uint16_t* from, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(from), "r"(inside ? 16 : 0)
               : "memory");
}

}  // namespace assay::backend::cuda
