// Between the GPUs of a model's shards, from within kernels: writing a value to all, telling that all of it is there,
// waiting for the others'.
#pragma once

#include "backend/cuda/rows/gather.h"

namespace assay::backend::cuda {

__device__ inline void set_flag(uint32_t* flag, uint32_t round) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(flag), "r"(round) : "memory");
}
__device__ inline uint32_t read_flag(const uint32_t* flag) {
  uint32_t round;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(round) : "l"(flag) : "memory");
  return round;
}
__device__ inline uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
// Never for ever: after one wait that was too long the others of the run are short, and what is computed then is thrown
// away by who reads `timed_out`, which lies in the host's memory and is looked at only by those who wait long. begin:
// of the wait.
__device__ inline bool waited_too_long(uint64_t begin, uint32_t* timed_out) {
  constexpr uint64_t kLong = 1'000'000;
  const uint64_t waited = nanoseconds() - begin;
  if (waited < kLong) return false;
  if (waited < static_cast<uint64_t>(kGatherSeconds * 1e9) && *static_cast<volatile uint32_t*>(timed_out) == 0)
    return false;
  *timed_out = 1;
  return true;
}
__device__ inline void wait_for_flag(const uint32_t* flag, uint32_t round, uint32_t* timed_out) {
  const uint64_t begin = nanoseconds();
  while (static_cast<int32_t>(read_flag(flag) - round) < 0 && !waited_too_long(begin, timed_out)) {
  }
}

// How the threads of a block meet that read what others sent, or have sent something.
struct AllMeet {
  __device__ void operator()() const { __syncthreads(); }
};
// By these threads, after wait_for_previous(): what the kernels of all shards sent is there.
template <class Meet = AllMeet>
__device__ void wait_for_shards(const ShardWait& wait, Meet meet = {}) {
  if (wait.n_shards == 0) return;
  const int q = static_cast<int>(threadIdx.x);
  if (q < wait.n_shards && q != wait.i_shard)
    wait_for_flag(wait.flags + q * kGatherBlocksMax, *wait.round, wait.timed_out);
  meet();
}

// Element j of the own columns, to the others.
__device__ inline void send_column(const GatherTask& to, int64_t j, float v) {
#pragma unroll 1
  for (int q = 0; q < to.n_shards; ++q) {
    if (q != to.i_shard) to.y[q][to.column + j] = v;
  }
}

// Sum `row` of the own chunks, to all, this shard too.
__device__ inline void send_sum(const SumsTask& task, int row, float v) {
#pragma unroll 1
  for (int q = 0; q < task.n_shards; ++q) *static_cast<volatile float*>(task.to[q] + row) = v;
}

// By these threads of every block that sent something, n_blocks of them: the last one tells the others that it is
// there.
template <class Meet = AllMeet>
__device__ void tell_shards(const GatherTask& to, uint32_t n_blocks, Meet meet = {}) {
  if (to.n_shards == 0) return;
  meet();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (atomicAdd(to.arrived, 1u) != n_blocks - 1) return;
  *to.arrived = 0;
  __threadfence_system();
  const uint32_t round = *to.round;
#pragma unroll 1  // counted down: a register less, which decode's kernels have not
  for (int q = to.n_shards - 1; q >= 0; --q) {
    if (q != to.i_shard) set_flag(to.flags[q] + to.i_shard * kGatherBlocksMax, round);
  }
}

}  // namespace assay::backend::cuda
