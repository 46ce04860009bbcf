// The kernel of decode.h. A block of threads per multiprocessor; warps take rows of the matrices in turn. Each warp has a ring of slots in
// shared memory, filled some steps ahead, and the first of them before the kernel waits for the one ahead of it: the memory works while the
// chain of dependent kernels has its latency.
#pragma once

#include <algorithm>

#include "backend/cuda/decode_formats.cuh"
#include "backend/cuda/launch.cuh"
#include "num/math.h"

namespace assay::backend::cuda {

struct DecodeLinear {
  Parts w;
  int32_t format = 0;  // index into the kernel's list
  int32_t first_item = 0;
  const float* bias = nullptr;
  float* y = nullptr;  // null: nobody reads it
};

struct DecodeTask {
  DecodeSource source;
  DecodeLinear linear[kLinearsMax];
  int32_t n_linears = 0, n_items = 0, n_blocks = 0;  // items: rows, or pairs of rows with a gate; blocks of a row
  int32_t depth = 0, slot_bytes = 0, ring_begin = 0, floats_begin = 0;  // of shared memory
  DecodeGate gate;
};

template <class... F>
struct DecodeFormats {
  static int find(tensor::DType dtype) {
    int i = 0, found = -1;
    ((F::kDType == dtype ? found = i : 0, ++i), ...);
    return found;
  }
  static int slot_bytes(int format) {
    int i = 0, bytes = 0;
    ((format == i++ ? bytes = F::kSlotBytes : 0), ...);
    return bytes;
  }
  template <class Visit>
  __device__ static void with(int format, Visit&& visit) {
    int i = 0;
    ((format == i++ ? visit(F{}) : void()), ...);
  }
};

__device__ inline void close_fetch() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n>
__device__ inline void wait_fetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}
inline constexpr int kDecodeDepthMin = 3, kDecodeDepthMax = 6;
// Until the oldest of `depth` - 1 fetches has come.
__device__ inline void wait_oldest(int depth) {
  switch (depth) {
    case 3: return wait_fetches<1>();
    case 4: return wait_fetches<2>();
    case 5: return wait_fetches<3>();
    default: return wait_fetches<4>();
  }
}

// The rows of a warp one after the other, step by step.
struct DecodeWalk {
  int item, at = 0;       // at: steps into the row
  int linear = 0, row = 0;
  __device__ DecodeWalk(const DecodeTask& task, int first) : item(first) { look(task); }
  __device__ bool more(const DecodeTask& task) const { return item < task.n_items; }
  __device__ void look(const DecodeTask& task) {
    if (task.gate.y != nullptr) {
      row = item;
      return;
    }
    while (linear + 1 < task.n_linears && item >= task.linear[linear + 1].first_item) ++linear;
    row = item - task.linear[linear].first_item;
  }
  __device__ void next_row(const DecodeTask& task) {
    if (task.gate.y != nullptr && linear == 0) {
      linear = 1;
      return;
    }
    if (task.gate.y != nullptr) linear = 0;
    item += static_cast<int>(gridDim.x) * kDecodeWarps;
    look(task);
  }
};

template <class List, class Lanes>
__global__ void __launch_bounds__(kDecodeThreads, 2) decode_kernel(const __grid_constant__ DecodeTask task) {
  extern __shared__ __align__(128) uint8_t memory[];
  let_next_start();
  const Seat seat;
  const int warp = static_cast<int>(threadIdx.x) / 32, n = task.n_blocks;
  const int begin = static_cast<int>(quant::chunk_begin(seat.chunk, n)), end = static_cast<int>(quant::chunk_begin(seat.chunk + 1, n));
  const int longest = (n + 7) / 8;  // all lanes walk as far, for the shuffles
  uint8_t* ring = memory + task.ring_begin + warp * task.depth * task.slot_bytes;

  DecodeWalk ahead(task, warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)), walk = ahead;
  int slot_ahead = 0;
  const auto fetch_step = [&] {
    if (ahead.more(task)) {
      const DecodeLinear& linear = task.linear[ahead.linear];
      List::with(linear.format, [&]<class F>(F) {
        Lanes::template fetch<F>(linear.w, begin + ahead.at, end, int64_t{ahead.row} * n, seat, ring + slot_ahead * task.slot_bytes);
      });
      ahead.at += Lanes::kStep;
      if (ahead.at >= longest) ahead.at = 0, ahead.next_row(task);
    }
    close_fetch();
    slot_ahead = slot_ahead + 1 == task.depth ? 0 : slot_ahead + 1;
  };
  for (int i = 0; i + 1 < task.depth; ++i) fetch_step();

  Eight w_ahead{};
  const int j = 256 * warp + 8 * seat.lane;
  if (task.source.w != nullptr && j < task.source.d) w_ahead = load_eight(task.source.w + j);
  const typename Lanes::Row x(memory, task.source.d);
  wait_for_previous();
  make_row(task.source, w_ahead, reinterpret_cast<float*>(memory + task.floats_begin), x);

  int slot = 0;
  float gate = 0.0f;
  while (walk.more(task)) {
    const DecodeLinear& linear = task.linear[walk.linear];
    typename Lanes::Sum sum{};
    for (int i = 0; i < longest; i += Lanes::kStep) {
      wait_oldest(task.depth);
      __syncwarp();  // slots are shared by the lanes of a chunk
      fetch_step();
      List::with(linear.format, [&]<class F>(F) {
        Lanes::template add<F>(sum, ring + slot * task.slot_bytes, x, begin + i, end, int64_t{walk.row} * n, seat);
      });
      slot = slot + 1 == task.depth ? 0 : slot + 1;
    }
    float y = Lanes::finish(sum);
    if (seat.lane == 0) {
      if (linear.bias != nullptr) y = y + linear.bias[walk.row];
      if (linear.y != nullptr) linear.y[walk.row] = y;
      if (task.gate.y != nullptr && walk.linear == 1) {
        const float activated = task.gate.activation == ops::GateActivation::silu ? num::silu(gate) : num::gelu_tanh(gate);
        task.gate.y[walk.row] = activated * y;
      }
      gate = y;
    }
    walk.next_row(task);
  }
}

template <class List, class Lanes>
void launch_decode(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, const Queue& queue) {
  using Row = typename Lanes::Row;
  constexpr int kRingBytesMax = 100 * 1024;
  DecodeTask task;
  task.source = source;
  task.gate = gate;
  task.n_blocks = source.d / Row::kBlock;
  for (const LinearTask& linear : linears) {
    const int format = List::find(linear.w->dtype);
    task.linear[task.n_linears++] = {linear.w->parts, format, task.n_items, linear.bias, linear.y};
    task.n_items += static_cast<int32_t>(linear.w->rows);
    task.slot_bytes = std::max(task.slot_bytes, List::slot_bytes(format));
  }
  if (gate.y != nullptr) task.n_items /= 2;
  const int n_warps = queue.n_multiprocessors * kDecodeWarps;
  const int steps_of_row = ((task.n_blocks + 7) / 8 + Lanes::kStep - 1) / Lanes::kStep;
  const int steps = (task.n_items + n_warps - 1) / n_warps * steps_of_row * (gate.y != nullptr ? 2 : 1);
  const int room = kRingBytesMax / (kDecodeWarps * task.slot_bytes);
  task.depth = std::clamp(std::min(room, steps + 1), kDecodeDepthMin, kDecodeDepthMax);
  const auto rounded = [](int bytes) { return (bytes + 127) / 128 * 128; };
  task.floats_begin = rounded(Row::bytes(task.n_blocks));
  task.ring_begin = task.floats_begin + (source.w != nullptr ? rounded(source.d * 4) : 0);
  const int bytes = task.ring_begin + kDecodeWarps * task.depth * task.slot_bytes;
  const auto kernel = decode_kernel<List, Lanes>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  launch(queue, kernel, dim3(static_cast<unsigned>(std::min(queue.n_multiprocessors, (task.n_items + kDecodeWarps - 1) / kDecodeWarps))), kDecodeThreads,
         static_cast<size_t>(bytes), task);
}

using DecodeFormats256 = DecodeFormats<DecodeQ4_K, DecodeQ5_K, DecodeQ6_K>;
using DecodeFormats32 = DecodeFormats<DecodeQ4_0, DecodeQ4_1, DecodeQ8_0>;
using DecodeFormatsFloat = DecodeFormats<DecodeF32, DecodeF16, DecodeBF16>;

// One file each, for they compile long.
void decode_linears_256(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue);
void decode_linears_32(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue);
void decode_linears_float(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, const Queue& queue);

}  // namespace assay::backend::cuda
