// What launches of the decode kernels share: the formats that a kernel knows, the start of a task, how its units are
// dealt to blocks and its warps to matrices, the shared memory of a block.
#pragma once

#include <algorithm>

#include "backend/cuda/decode/decode.h"
#include "backend/cuda/linear/format_list.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace assay::backend::cuda {

// What a task of any of the kernels begins with: the row's blocks and the matrices' units, each of so many rows.
template <class Task, class List, class Row>
Task start_task(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                int rows_of_unit) {
  Task task;
  task.source = source;
  task.gate = gate;
  const int n_shards = std::max(gate.sums.n_shards, 1);
  task.n_blocks = source.d / Row::kBlock * n_shards;
  task.n_chunks = 8 / n_shards;
  for (const LinearTask& linear : linears) {
    auto& to = task.linear[task.n_linears++];
    to.format = List::find(linear.w->dtype);
    to.n_rows = static_cast<int32_t>(linear.w->rows);
    to.n_units = (to.n_rows + rows_of_unit - 1) / rows_of_unit;
    to.bias = linear.bias;
    to.y = linear.y;
  }
  return task;
}

// Whether what a gate leaves is read: a row without a norm, longer than the one that is made.
template <class Task>
bool reads_gate(const DecodeSource& source, const Task& task) {
  return source.w == nullptr && source.d > task.linear[0].n_rows;
}

// Whether the model is wide, which is a product's width on one side; by that it is fetched ahead.
template <class Task>
bool is_wide(const DecodeSource& source, const Task& task) {
  const int n_parts = std::max({task.gate.sums.n_shards, task.gate.send.n_shards, 1});  // shards that have the rows
  return (source.w != nullptr ? source.d : n_parts * task.linear[0].n_rows) > kNarrow;
}

// Blocks of threads, and what each of them has at most (of bytes: about).
struct BlockShares {
  int n_blocks = 0, units_each = 0;
  int64_t bytes_each = 0;
};
template <class List, class Task>
BlockShares share_blocks(const Task& task, const Queue& queue) {
  int n_units = 0;
  int64_t n_bytes = 0;
  for (int i = 0; i < task.n_linears; ++i) {
    n_units += task.gate.y != nullptr && i > 0 ? 0 : task.linear[i].n_units;
    n_bytes += int64_t{task.linear[i].n_rows} * task.n_blocks * List::block_bytes(task.linear[i].format);
  }
  const int n_blocks = std::min(queue.n_multiprocessors, std::max(n_units, task.n_linears));
  return {n_blocks, (n_units + n_blocks - 1) / n_blocks, n_bytes / n_blocks};
}

// The fewest warps for a matrix with which none has more than `most` bytes of each block of a row; 0 where one unit is
// more.
template <class List, class Linear>
int warps_for(const Linear& linear, int most) {
  const int units = most / List::block_bytes(linear.format);
  return units > 0 ? (linear.n_units + units - 1) / units : 0;
}
// Warps to matrices: the warp that has most has as few bytes as can be. Each matrix has one at least. The most units of
// a warp.
template <class List, class Task>
int share_warps(Task& task, int n_warps) {
  const auto linears = std::span(task.linear).first(static_cast<size_t>(task.gate.y != nullptr ? 1 : task.n_linears));
  int most = 0, n_wanted = 0;  // as for warps_for(), and the warps wanted: the first with which these are enough
  for (bool fits = false; !fits;) {
    int next = INT_MAX;
    for (const auto& linear : linears) {
      const int bytes = List::block_bytes(linear.format);
      next = std::min(next, (most / bytes + 1) * bytes);
    }
    most = next, n_wanted = 0, fits = true;
    for (const auto& linear : linears) {
      const int n = warps_for<List>(linear, most);
      fits = fits && n > 0;
      n_wanted += n;
    }
    fits = fits && (n_wanted <= n_warps || n_wanted == static_cast<int>(linears.size()));
  }
  int first = 0, rounds = 1;
  for (auto& linear : linears) {
    const int n = warps_for<List>(linear, most);
    linear.first_warp = first;
    linear.n_warps = static_cast<int>(int64_t{n} * (n_warps - first) / n_wanted);
    n_wanted -= n;
    first += linear.n_warps;
    rounds = std::max(rounds, (linear.n_units + linear.n_warps - 1) / linear.n_warps);
  }
  if (task.gate.y != nullptr) task.linear[1].first_warp = 0, task.linear[1].n_warps = n_warps;
  return rounds;
}

inline int rounded_to_128(int bytes) { return (bytes + 127) / 128 * 128; }

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
  take_decode_cut(kernel);
  launch(queue, kernel, dim3(static_cast<unsigned>(n_blocks)), threads, static_cast<size_t>(bytes), task);
}

// The registers of blocks with fillers are as if a block had so many threads: so that two of ten warps have a
// multiprocessor's, or one of twelve and one of attention.
inline constexpr int kThreadsAsIf = 640;

}  // namespace assay::backend::cuda
