// See gather.h.
//
//   block b   its share of the own columns --> y of this GPU and of every other
//             a flag of its own [this GPU][b] --> every other GPU; then it waits for [another GPU][b] on this one
#include <algorithm>

#include "backend/cuda/rows/gather.cuh"
#include "backend/cuda/rows/gather.h"
#include "backend/cuda/runtime/launch.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kBlockFloats = 4096;  // of the own columns that a block of threads takes

// The block's share of the own columns, to everybody.
template <class Unit>
__device__ void write_columns(const GatherTask& task) {
  constexpr int kFloats = sizeof(Unit) / sizeof(float);
  const int units = task.own_width / kFloats, n = task.n_rows * units, stride = static_cast<int>(gridDim.x) * kThreads;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); i < n; i += stride) {
    const int row = i / units, j = i % units;
    const Unit v = reinterpret_cast<const Unit*>(task.x)[i];
    const int64_t at = int64_t{row} * task.width + task.column + j * kFloats;
#pragma unroll 1
    for (int q = 0; q < task.n_shards; ++q) *reinterpret_cast<Unit*>(task.y[q] + at) = v;
  }
}

// Every block of threads has flags of its own, so that none waits for another of its kernel.
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ GatherTask task, bool ahead) {
  if (ahead) let_next_start();
  wait_for_previous();
  const uint32_t round = *task.round;
  const bool in_fours = (task.own_width | task.column | task.width) % 4 == 0;
  in_fours ? write_columns<float4>(task) : write_columns<float>(task);
  __syncthreads();
  const int q = static_cast<int>(threadIdx.x);
  if (q >= task.n_shards || q == task.i_shard) return;
  __threadfence_system();
  set_flag(task.flags[q] + task.i_shard * kGatherBlocksMax + blockIdx.x, round);
  wait_for_flag(task.flags[task.i_shard] + q * kGatherBlocksMax + blockIdx.x, round, task.timed_out);
}

}  // namespace

void gather_columns(const GatherTask& task, bool ahead, const Queue& queue) {
  const int64_t floats = int64_t{task.width} * task.n_rows / task.n_shards;  // the same for all shards
  const auto n_blocks =
      static_cast<unsigned>(std::clamp<int64_t>((floats + kBlockFloats - 1) / kBlockFloats, 1, kGatherBlocksMax));
  launch(queue, gather_kernel, dim3(n_blocks), kThreads, 0, task, ahead);
}

}  // namespace assay::backend::cuda
