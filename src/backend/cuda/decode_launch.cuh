// What launches of the decode kernels share: the formats that a kernel knows, how its warps are dealt to matrices, the shared memory of a block.
#pragma once

#include <algorithm>

#include "backend/cuda/decode.h"
#include "backend/cuda/launch.cuh"

namespace assay::backend::cuda {

// The formats of a kernel, by their places in its list.
template <class... F>
struct FormatList {
  static int find(tensor::DType dtype) {
    int i = 0, found = -1;
    ((F::kDType == dtype ? found = i : 0, ++i), ...);
    return found;
  }
  template <class Visit>
  __device__ static void with(int format, Visit&& visit) {
    int i = 0;
    ((format == i++ ? visit(F{}) : void()), ...);
  }
};

// Warps to matrices by their units; each matrix has one at least. The most units of a warp.
template <class Task>
int share_warps(Task& task, int n_warps) {
  const bool is_pair = task.gate.y != nullptr;
  int first = 0, n_left = 0, rounds = 1;
  for (int i = 0; i < task.n_linears; ++i) n_left += task.linear[i].n_units;
  for (int i = 0; i < task.n_linears; ++i) {
    auto& linear = task.linear[i];
    linear.first_warp = is_pair ? 0 : first;
    const int others = task.n_linears - 1 - i;
    const int share = static_cast<int>(int64_t{n_warps - first} * linear.n_units / n_left);
    linear.n_warps = is_pair ? n_warps : std::clamp(share, 1, n_warps - first - others);
    first += linear.n_warps;
    n_left -= linear.n_units;
    rounds = std::max(rounds, (linear.n_units + linear.n_warps - 1) / linear.n_warps);
  }
  return rounds;
}

// Of a block, beside what the kernel itself has of it.
inline int shared_of_block() {
  int device = 0, bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes - 1024;
}
// Whether a kernel hands something to other GPUs, or waits for it: such kernels are instances of their own.
inline bool is_of_shard(const DecodeSource& source, const DecodeGate& gate) {
  return source.wait.n_shards > 0 || source.sums.n_shards > 0 || gate.send.n_shards > 0 || gate.sums.n_shards > 0;
}
template <class Kernel, class Task>
void launch_blocks(Kernel kernel, int n_blocks, int threads, int bytes, const Task& task, const Queue& queue) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);  // one cut for all kernels
  launch(queue, kernel, dim3(static_cast<unsigned>(n_blocks)), threads, static_cast<size_t>(bytes), task);
}

// One file each, for they compile long.
bool decode_knows_256(tensor::DType dtype) noexcept;
void decode_linears_256(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue);
void decode_linears_32(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue);
void decode_linears_float(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, const Queue& queue);

}  // namespace assay::backend::cuda
