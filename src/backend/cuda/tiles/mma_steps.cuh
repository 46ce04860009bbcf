// The instructions that the prefill kernels are made of: copies that run on their own, fragments, products on the
// tensor cores.
#pragma once

#include <cstdint>

namespace assay::backend::cuda {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// 16 bytes from global to shared memory; without `inside` zeros.
__device__ inline void copy_16(uint32_t to, const void* from, bool inside) {
  const int n = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(n) : "memory");
}
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
// Waits until at most n of the groups of copies are under way.
template <int n>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory");
}

// 8 x 16 bytes each: lane l names row l % 8 of matrix l / 8 and receives word l % 4 of row l / 4 of every matrix.
__device__ inline void load_matrices(uint32_t address, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address));
}
// The same of 8 x 8 half-precision numbers, columns for rows.
__device__ inline void load_transposed(uint32_t address, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address));
}
__device__ inline void load_matrices(uint32_t address, uint32_t (&m)[2]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(m[0]), "=r"(m[1]) : "r"(address));
}

// Fragments of 16 rows x 32 weights and 32 x 8 columns: element e of the sums is of row lane / 4 + 8 * (e / 2), column
// 2 * (lane % 4) + e % 2.
__device__ inline void multiply_32(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int32_t start, int32_t (&sum)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, "
      "%10};"
      : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}
// 16 x 16 times 16 x 8: either half of the fragments above.
__device__ inline void multiply_16(uint32_t a0, uint32_t a1, uint32_t b, int32_t (&sum)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
      : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(0));
}
// Half-precision numbers that are integers, 16 x 16 times 16 x 8; exact while every partial sum is below 2^24.
__device__ inline void multiply_halves(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&sum)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, "
      "%10};"
      : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
// The same of any half-precision or BF16 numbers, added to the sums.
__device__ inline void add_halves(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&sum)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void add_bf16(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&sum)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace assay::backend::cuda
