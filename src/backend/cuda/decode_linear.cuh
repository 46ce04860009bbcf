// The kernel of decode.h. A block of threads per multiprocessor; its warps fetch weights before the kernel waits for the one ahead of it: the
// memory works while the chain of dependent kernels has its latency. One kernel serves a model's products with a gate and without: what runs
// after the wait lies in the caches of instructions from the product before.
#pragma once

#include <algorithm>

#include "backend/cuda/decode_ring.cuh"
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

template <class Shared_, class... F>
struct DecodeFormats : FormatList<F...> {
  using Shared = Shared_;
  // The parts of a matrix in slots for so many blocks of a row.
  static void cut(const Parts& w, int n_of_slot, int n_of_row, DecodeLinear& linear) {
    int i = 0;
    ((linear.format == i++ ? cut_as<F>(w, n_of_slot, n_of_row, linear) : void()), ...);
  }

 private:
  template <class One>
  static void cut_as(const Parts& w, int n_of_slot, int n_of_row, DecodeLinear& linear) {
    for (int i = 0; i < One::kBigs; ++i) {
      const PartOf part = One::big(i);
      linear.big[i] = {w.base[part.i], part.bytes, row_stride_of(n_of_slot * part.bytes, part.skew)};
    }
    for (int i = 0; i < One::kSmalls; ++i) {
      const PartOf part = One::small(i);
      linear.small[i] = {w.base[part.i], part.bytes, small_stride_of(n_of_row, part)};
    }
  }
};

// How a launch is laid out; no bit depends on it.
struct DecodeLayout {
  int warps_min = 8, walkers_max = 8;  // of a block; of those that take units
  int shared_bytes = 112 * 1024;       // of a block, if two slots of a warp fit: another kernel's block has room beside it
  int step_bytes = 24 * 1024;          // of a unit that comes in one step; longer ones come in steps of at most as much
  int depth_max = 8;
};

constexpr int kDecodeThreads = 256;

template <class List, class Row>
__global__ void __launch_bounds__(kDecodeThreads, 2) decode_kernel(const __grid_constant__ DecodeTask task) {
  extern __shared__ __align__(128) uint8_t memory[];
  let_next_start();
  const Row x(memory, task.n_blocks);
  DecodeWalk<List, Row> walk(task, memory, x);
  walk.start();

  AheadOfRow<Row, 2> ahead(task.source, x);
  auto* floats = reinterpret_cast<float*>(memory + kept(task.floats_begin));
  wait_for_previous();
  if (Row::kOfShard) wait_for_shards(task.source.wait);
  make_row(task.source, ahead, floats, x);

  walk.run();
  if (Row::kOfShard) tell_shards(task.gate.send, gridDim.x);
}

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

// Cuts the matrices into slots of so many blocks of each chunk (0: whole rows); the bytes of a slot, and of a unit's small parts.
template <class List>
void cut_slots(DecodeTask& task, std::span<const LinearTask> linears, int step) {
  task.step = step;
  task.slot_bytes = task.small_bytes = 0;
  for (int i = 0; i < task.n_linears; ++i) {
    DecodeLinear& linear = task.linear[i];
    List::cut(linears[static_cast<size_t>(i)].w->parts, step == 0 ? task.n_blocks : 8 * step, task.n_blocks, linear);
    task.slot_bytes = std::max(task.slot_bytes, List::Shared::kRows * (linear.big[0].stride + linear.big[1].stride));
    task.small_bytes = std::max(task.small_bytes, List::Shared::kRows * (linear.small[0].stride + linear.small[1].stride));
  }
}

// Places in shared memory for this many warps; how many bytes.
template <class List, class Row>
int lay_out(DecodeTask& task, std::span<const LinearTask> linears, const DecodeLayout& layout, int n_warps, int rounds) {
  const auto rounded = [](int bytes) { return (bytes + 127) / 128 * 128; };
  const int longest = (task.n_blocks + 7) / 8;
  cut_slots<List>(task, linears, 0);
  const int n_parts = std::min((task.slot_bytes + layout.step_bytes - 1) / layout.step_bytes, longest);
  if (n_parts > 1) cut_slots<List>(task, linears, (longest + n_parts - 1) / n_parts);
  const int steps = task.step == 0 ? 1 : (longest + task.step - 1) / task.step;
  const auto small_slots = [&](int depth) { return std::min(rounds, (depth + steps - 2) / steps + 1); };
  task.barriers_begin = rounded(Row::bytes(task.source.d / Row::kBlock));
  task.floats_begin = rounded(task.barriers_begin + 8 * n_warps * layout.depth_max);
  task.ring_begin = task.floats_begin + (task.source.w != nullptr ? row_floats(task.source.d) * 4 : 0);
  const auto bytes_with = [&](int depth) {
    return task.ring_begin + n_warps * (depth * task.slot_bytes + small_slots(depth) * task.small_bytes) + 32;  // past the last one, read and not used
  };
  const int depth_most = std::min(rounds * steps, layout.depth_max);
  task.depth = std::min(2, depth_most);
  while (task.depth < depth_most && bytes_with(task.depth + 1) <= layout.shared_bytes) ++task.depth;
  task.n_small = small_slots(task.depth);
  task.small_begin = task.ring_begin + n_warps * task.depth * task.slot_bytes;
  return bytes_with(task.depth);
}

struct DecodePlan {
  int n_blocks = 0, threads = 0, bytes = 0;  // of the grid, of a block
  int rounds = 0;                            // the most units of a warp
};

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

template <class List, class Row>
DecodePlan plan_task(DecodeTask& task, std::span<const LinearTask> linears, const DecodeLayout& layout, const Queue& queue) {
  const int shared_max = shared_of_block();
  DecodePlan plan;
  int n_units = 0;
  for (int i = 0; i < task.n_linears; ++i) {
    const int rows_of_one = task.gate.y != nullptr ? List::Shared::kRows / 2 : List::Shared::kRows;
    task.linear[i].n_units = (task.linear[i].n_rows + rows_of_one - 1) / rows_of_one;
    n_units += task.gate.y != nullptr && i > 0 ? 0 : task.linear[i].n_units;
  }
  plan.n_blocks = std::min(queue.n_multiprocessors, std::max(n_units, task.n_linears));
  const int units_each = (n_units + plan.n_blocks - 1) / plan.n_blocks;  // of a block of threads
  for (task.n_walkers = std::min(units_each, layout.walkers_max);; --task.n_walkers) {
    plan.rounds = share_warps(task, plan.n_blocks * task.n_walkers);
    plan.bytes = lay_out<List, Row>(task, linears, layout, task.n_walkers, plan.rounds);
    if (plan.bytes <= shared_max || task.n_walkers == 1) break;
  }
  plan.threads = 32 * std::max(task.n_walkers, layout.warps_min);
  return plan;
}

template <class List, class Row>
DecodeTask decode_task(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate) {
  DecodeTask task;
  task.source = source;
  task.gate = gate;
  const int n_shards = std::max(gate.sums.n_shards, 1);
  task.n_blocks = source.d / Row::kBlock * n_shards;
  task.n_chunks = 8 / n_shards;
  for (const LinearTask& linear : linears) {
    DecodeLinear& to = task.linear[task.n_linears++];
    to.format = List::find(linear.w->dtype);
    to.n_rows = static_cast<int32_t>(linear.w->rows);
    to.bias = linear.bias;
    to.y = linear.y;
  }
  return task;
}

template <class List, class Row>
void launch_decode(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, const Queue& queue) {
  if constexpr (!Row::kOfShard) {
    if (is_of_shard(source, gate)) return launch_decode<List, OfShard<Row>>(source, linears, gate, queue);
  }
  DecodeTask task = decode_task<List, Row>(source, linears, gate);
  DecodePlan plan;
  if (gate.sums.n_shards > 0) {  // of columns each warp has a unit or two: these come in whole rows, by the fewest copies, where all fit at once
    DecodeLayout layout;
    layout.step_bytes = 48 * 1024;
    plan = plan_task<List, Row>(task, linears, layout, queue);
  }
  if (plan.rounds != 1) plan = plan_task<List, Row>(task, linears, DecodeLayout{}, queue);
  launch_blocks(decode_kernel<List, Row>, plan.n_blocks, plan.threads, plan.bytes, task, queue);
}

using DecodeFormats32 = DecodeFormats<OfChains, DecodeQ4_0, DecodeQ4_1, DecodeQ8_0>;
using DecodeFormatsFloat = DecodeFormats<OfFloats, DecodeF32, DecodeF16, DecodeBF16>;

// One file each, for they compile long.
bool decode_knows_256(tensor::DType dtype) noexcept;
void decode_linears_256(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue);
void decode_linears_32(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue);
void decode_linears_float(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, const Queue& queue);

}  // namespace assay::backend::cuda
