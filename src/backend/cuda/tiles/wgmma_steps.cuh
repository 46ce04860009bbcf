// The instructions of the kernels that only Hopper has: products of a group of four warps with columns in shared
// memory, which run on their own, barriers in shared memory that count arrivals, and registers that one group of warps
// leaves to another.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace assay::backend::cuda {

// A barrier's phase ends when `count` have arrived.
__device__ inline void make_barrier(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}
__device__ inline void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }
// The same for the copies of a block that is no part of a cluster: the fence above has taken up to 3,400 clocks while
// other warps copied.
__device__ inline void barriers_made_for_copies() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}\n" : : "r"(barrier) : "memory");
}
// Arrives, and lets the phase end only when so many bytes have been copied.
__device__ inline void arrive_with_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}\n"
               :
               : "r"(barrier), "r"(bytes)
               : "memory");
}
// The box of `map` at (first, second) to shared memory, by the copy engine; its bytes count at the barrier.
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, int first, int second, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               :
               : "r"(to), "l"(&map), "r"(first), "r"(second), "r"(barrier)
               : "memory");
}
// So many bytes, neighbours in both, by the copy engine; they count at the barrier.
__device__ inline void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(to), "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ inline void wait_phase(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}\n"
      :
      : "r"(barrier), "r"(parity)
      : "memory");
}
// The way back from shared memory, as this thread's stores, which wait_stores() waits for.
__device__ inline void store_bytes(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;"
               :
               : "l"(to), "r"(from), "r"(bytes)
               : "memory");
}
// A box of `map` at (first, second) from shared memory, whose part outside is left out, as this thread's stores, too.
__device__ inline void store_box(const CUtensorMap& map, int first, int second, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\ncp.async.bulk.commit_group;"
      :
      : "l"(&map), "r"(first), "r"(second), "r"(from)
      : "memory");
}
__device__ inline void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" : : : "memory"); }
// What was stored before to the device's memory is seen by the copy engine after.
__device__ inline void show_to_copies() { asm volatile("fence.proxy.async.global;" : : : "memory"); }

// What was written to shared memory before is seen by the tensor cores, and by the copy engine, after.
__device__ inline void show_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

// Registers written so far may be read by products from here on; products up to here belong to one group; all groups
// are done.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int n>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(n) : "memory");
}

// Columns as the products read them. Swizzled: 128 bytes a column, the pieces of 16 of column c exchanged by c % 8.
// Plain: 16 bytes a column, the next 16 of all columns `next_piece` bytes further. Narrow: 64 bytes a column, the
// pieces of columns c and c + 1 exchanged by c / 2 % 4.
__device__ inline uint64_t swizzled_columns(uint32_t address) {
  return uint64_t{(address & 0x3FFFFu) >> 4} | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
__device__ inline uint64_t narrow_columns(uint32_t address) {
  return uint64_t{(address & 0x3FFFFu) >> 4} | uint64_t{1} << 16 | uint64_t{512 >> 4} << 32 | uint64_t{2} << 62;
}
// Swizzled columns so many bytes behind those; in a form that costs no carry.
__device__ inline uint64_t later_columns(uint64_t swizzled, uint32_t bytes) {
  uint64_t later;
  asm("mov.b64 %0, {%1, %2};"
      : "=l"(later)
      : "r"(static_cast<uint32_t>(swizzled) + (bytes >> 4)), "n"(1024 >> 4 | 1 << 30));
  return later;
}
__device__ inline uint64_t plain_columns(uint32_t address, uint32_t next_piece) {
  return uint64_t{(address & 0x3FFFFu) >> 4} | uint64_t{next_piece >> 4} << 16 | uint64_t{128 >> 4} << 32;
}

// 64 rows x 32 weights times 32 x 128 columns of bytes; the fragments and sums of a warp are those of multiply_32
// (mma_steps.cuh), rows 16 w on for warp w: element e % 4 of column tile e / 4. kAccumulate: to the sums that are
// there; otherwise they are not read. A macro, because the type of the weights is part of the instruction's text.
#define ASSAY_MULTIPLY_BYTES(name, type)                                                                           \
  template <bool kAccumulate>                                                                                      \
  __device__ inline void name(int32_t(&sum)[64], const uint32_t(&a)[4], uint64_t b) {                              \
    asm volatile(                                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                                               \
        "wgmma.mma_async.sync.aligned.m64n128k32.s32." type                                                        \
        ".s8 {"                                                                                                    \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                   \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                         \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                         \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                        \
        "{%64, %65, %66, %67}, %68, p;\n}\n"                                                                       \
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]), "+r"(sum[4]), "+r"(sum[5]), "+r"(sum[6]),        \
          "+r"(sum[7]), "+r"(sum[8]), "+r"(sum[9]), "+r"(sum[10]), "+r"(sum[11]), "+r"(sum[12]), "+r"(sum[13]),    \
          "+r"(sum[14]), "+r"(sum[15]), "+r"(sum[16]), "+r"(sum[17]), "+r"(sum[18]), "+r"(sum[19]), "+r"(sum[20]), \
          "+r"(sum[21]), "+r"(sum[22]), "+r"(sum[23]), "+r"(sum[24]), "+r"(sum[25]), "+r"(sum[26]), "+r"(sum[27]), \
          "+r"(sum[28]), "+r"(sum[29]), "+r"(sum[30]), "+r"(sum[31]), "+r"(sum[32]), "+r"(sum[33]), "+r"(sum[34]), \
          "+r"(sum[35]), "+r"(sum[36]), "+r"(sum[37]), "+r"(sum[38]), "+r"(sum[39]), "+r"(sum[40]), "+r"(sum[41]), \
          "+r"(sum[42]), "+r"(sum[43]), "+r"(sum[44]), "+r"(sum[45]), "+r"(sum[46]), "+r"(sum[47]), "+r"(sum[48]), \
          "+r"(sum[49]), "+r"(sum[50]), "+r"(sum[51]), "+r"(sum[52]), "+r"(sum[53]), "+r"(sum[54]), "+r"(sum[55]), \
          "+r"(sum[56]), "+r"(sum[57]), "+r"(sum[58]), "+r"(sum[59]), "+r"(sum[60]), "+r"(sum[61]), "+r"(sum[62]), \
          "+r"(sum[63])                                                                                            \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAccumulate ? 1 : 0));                           \
  }
ASSAY_MULTIPLY_BYTES(multiply_bytes_unsigned, "u8")
ASSAY_MULTIPLY_BYTES(multiply_bytes_signed, "s8")
#undef ASSAY_MULTIPLY_BYTES

// The same with 64 columns, sums from kAt on.
#define ASSAY_MULTIPLY_BYTES(name, type)                                                                           \
  template <bool kAccumulate, int kAt, int n>                                                                      \
  __device__ inline void name(int32_t(&sums)[n], const uint32_t(&a)[4], uint64_t b) {                              \
    int32_t* const sum = sums + kAt;                                                                               \
    asm volatile(                                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                               \
        "wgmma.mma_async.sync.aligned.m64n64k32.s32." type                                                         \
        ".s8 {"                                                                                                    \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                   \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                        \
        "{%32, %33, %34, %35}, %36, p;\n}\n"                                                                       \
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]), "+r"(sum[4]), "+r"(sum[5]), "+r"(sum[6]),        \
          "+r"(sum[7]), "+r"(sum[8]), "+r"(sum[9]), "+r"(sum[10]), "+r"(sum[11]), "+r"(sum[12]), "+r"(sum[13]),    \
          "+r"(sum[14]), "+r"(sum[15]), "+r"(sum[16]), "+r"(sum[17]), "+r"(sum[18]), "+r"(sum[19]), "+r"(sum[20]), \
          "+r"(sum[21]), "+r"(sum[22]), "+r"(sum[23]), "+r"(sum[24]), "+r"(sum[25]), "+r"(sum[26]), "+r"(sum[27]), \
          "+r"(sum[28]), "+r"(sum[29]), "+r"(sum[30]), "+r"(sum[31])                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAccumulate ? 1 : 0));                           \
  }
ASSAY_MULTIPLY_BYTES(multiply_half_unsigned, "u8")
ASSAY_MULTIPLY_BYTES(multiply_half_signed, "s8")
#undef ASSAY_MULTIPLY_BYTES

// 64 rows x 16 times 16 x 64 columns of half-precision numbers.
__device__ inline void multiply_halves_64(float (&sum)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]),
        "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]),
        "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]),
        "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]),
        "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

}  // namespace assay::backend::cuda
