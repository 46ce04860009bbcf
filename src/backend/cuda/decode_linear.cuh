// The kernel of decode.h. A block of threads per multiprocessor; warps take rows of the matrices in turn. Each warp has a ring of slots in
// shared memory, filled some steps ahead, and the first of them before the kernel waits for the one ahead of it: the memory works while the
// chain of dependent kernels has its latency.
#pragma once

#include <algorithm>

#include "backend/cuda/decode_formats.cuh"
#include "backend/cuda/gather.cuh"
#include "backend/cuda/launch.cuh"
#include "num/math.h"

namespace assay::backend::cuda {

struct DecodeLinear {
  Parts w;
  int32_t format = 0;  // index into the kernel's list
  int32_t n_rows = 0, first_warp = 0, n_warps = 0;  // of the warps of the grid, each of which keeps to one matrix
  const float* bias = nullptr;
  float* y = nullptr;  // null: nobody reads it
};

struct DecodeTask {
  DecodeSource source;
  DecodeLinear linear[kLinearsMax];  // with a gate two, of one shape and format, whose rows a warp takes in pairs
  int32_t n_linears = 0, n_blocks = 0;  // blocks of a row
  int32_t slot_bytes = 0, ring_begin = 0, floats_begin = 0;  // of shared memory
  int32_t depth = 0;  // slots of a warp, 3 or 4
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

// A warp's rows of kRows matrices, step by step. The fetches run depth - 1 steps ahead.
template <class Lanes, class F, int kRows>
struct DecodeWalk {
  const Seat seat;
  Parts w[kRows];
  int n, n_rows, stride, begin, end, longest;  // blocks of a row; of the lane's chunk; all lanes walk as far, for the shuffles
  int row, row_ahead, at_ahead = 0, slot = 0, slot_ahead = 0, slot_bytes, depth_of_one;
  uint8_t* ring;

  __device__ DecodeWalk(const DecodeTask& task, const DecodeLinear* linear, int i_warp, uint8_t* memory)
      : n(task.n_blocks),
        n_rows(linear->n_rows),
        stride(linear->n_warps),
        row(i_warp - linear->first_warp),
        slot_bytes(task.slot_bytes),
        depth_of_one(task.depth) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) w[r] = linear[r].w;
    begin = static_cast<int>(quant::chunk_begin(seat.chunk, n));
    end = static_cast<int>(quant::chunk_begin(seat.chunk + 1, n));
    longest = (n + 7) / 8;
    row_ahead = row;
    ring = memory + task.ring_begin + static_cast<int>(threadIdx.x) / 32 * (depth() * kRows * slot_bytes);
  }
  __device__ int depth() const { return kRows == 2 ? 3 : depth_of_one; }
  __device__ void fetch_step() {
    if (row_ahead < n_rows) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        Lanes::template fetch<F>(w[r], begin + at_ahead, end, int64_t{row_ahead} * n, seat, ring + (slot_ahead * kRows + r) * slot_bytes);
      }
      at_ahead += Lanes::kStep;
      if (at_ahead >= longest) at_ahead = 0, row_ahead += stride;
    }
    close_fetch();
    slot_ahead = slot_ahead + 1 == depth() ? 0 : slot_ahead + 1;
  }
  __device__ void start() {
    for (int i = 0; i + 1 < depth(); ++i) fetch_step();
  }
  // Where start() has led to, without fetching again.
  __device__ void skip_start() {
    for (int i = 0; i + 1 < depth(); ++i) {
      at_ahead += Lanes::kStep;
      if (at_ahead >= longest) at_ahead = 0, row_ahead += stride;
    }
    slot_ahead = depth() - 1;
  }
  // The products of row `row`; every lane has them.
  __device__ void take_row(const typename Lanes::Row& x, float (&y)[kRows]) {
    typename Lanes::Sum sum[kRows] = {};
    for (int i = 0; i < longest; i += Lanes::kStep) {
      depth() == 4 ? wait_fetches<2>() : wait_fetches<1>();
      __syncwarp();  // slots are shared by the lanes of a chunk
      fetch_step();
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        Lanes::template add<F>(sum[r], ring + (slot * kRows + r) * slot_bytes, x, begin + i, end, int64_t{row} * n, seat);
      }
      slot = slot + 1 == depth() ? 0 : slot + 1;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) y[r] = Lanes::finish(sum[r]);
  }
};

// kRows 1: each warp keeps to one of the matrices. 2: pairs of rows, which end in the gate.
template <class List, class Lanes, int kRows>
__global__ void __launch_bounds__(kDecodeThreads, 2) decode_kernel(const __grid_constant__ DecodeTask task) {
  extern __shared__ __align__(128) uint8_t memory[];
  let_next_start();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int i_warp = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  int i = 0;
  while (kRows == 1 && i + 1 < task.n_linears && i_warp >= task.linear[i + 1].first_warp) ++i;
  const DecodeLinear* linear = task.linear + i;
  const int format = __shfl_sync(kWholeWarp, linear->format, 0);
  List::with(format, [&]<class F>(F) { DecodeWalk<Lanes, F, kRows>(task, linear, i_warp, memory).start(); });

  Eight w_ahead{};
  const int j = 256 * warp + 8 * lane;
  if (task.source.w != nullptr && j < task.source.d) w_ahead = load_eight(task.source.w + j);
  const typename Lanes::Row x(memory, task.source.d);
  wait_for_previous();
  wait_for_shards(task.source.wait);
  make_row(task.source, w_ahead, reinterpret_cast<float*>(memory + task.floats_begin), x);

  List::with(format, [&]<class F>(F) {
    DecodeWalk<Lanes, F, kRows> walk(task, linear, i_warp, memory);
    walk.skip_start();
    for (; walk.row < walk.n_rows; walk.row += walk.stride) {
      float y[kRows];
      walk.take_row(x, y);
      if (lane != 0) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (linear[r].bias != nullptr) y[r] = y[r] + linear[r].bias[walk.row];
        if (linear[r].y != nullptr) linear[r].y[walk.row] = y[r];
      }
      if (kRows == 1) send_column(task.gate.send, walk.row, y[0]);
      if constexpr (kRows == 2) {
        const float activated = task.gate.activation == ops::GateActivation::silu ? num::silu(y[0]) : num::gelu_tanh(y[0]);
        task.gate.y[walk.row] = activated * y[1];
        send_column(task.gate.send, walk.row, activated * y[1]);
      }
    }
  });
  tell_shards(task.gate.send, gridDim.x);
}

template <class List, class Lanes, int kRows>
void launch_rows(DecodeTask& task, int n_rows, const Queue& queue) {
  using Row = typename Lanes::Row;
  const auto rounded = [](int bytes) { return (bytes + 127) / 128 * 128; };
  task.floats_begin = rounded(Row::bytes(task.n_blocks));
  task.ring_begin = task.floats_begin + (task.source.w != nullptr ? rounded(task.source.d * 4) : 0);
  const int n_blocks = std::min(queue.n_multiprocessors, (n_rows + kDecodeWarps - 1) / kDecodeWarps), n_warps = n_blocks * kDecodeWarps;
  // A kernel of one or two rows a warp starts while the gate's runs, if their shared memory fits a multiprocessor's together.
  constexpr int kBesideGate = 100 * 1024;
  const auto bytes_with = [&](int depth) { return task.ring_begin + kDecodeWarps * depth * kRows * task.slot_bytes; };
  task.depth = kRows == 2 || (n_rows <= 2 * n_warps && bytes_with(4) > kBesideGate) ? 3 : 4;
  const int bytes = bytes_with(task.depth);
  int first = 0;
  for (int i = 0, n_left = n_rows; i < task.n_linears; ++i) {  // warps in proportion to rows
    DecodeLinear& linear = task.linear[i];
    linear.first_warp = kRows == 2 ? 0 : first;
    linear.n_warps = kRows == 2 ? n_warps : std::max(1, static_cast<int>(int64_t{n_warps - first} * linear.n_rows / n_left));
    first += linear.n_warps;
    n_left -= linear.n_rows;
  }
  const auto kernel = decode_kernel<List, Lanes, kRows>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);  // one cut for all kernels
  launch(queue, kernel, dim3(static_cast<unsigned>(n_blocks)), kDecodeThreads, static_cast<size_t>(bytes), task);
}

template <class List, class Lanes>
void launch_decode(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, const Queue& queue) {
  DecodeTask task;
  task.source = source;
  task.gate = gate;
  task.n_blocks = source.d / Lanes::Row::kBlock;
  int n_rows = 0;
  for (const LinearTask& linear : linears) {
    const int format = List::find(linear.w->dtype);
    const auto rows = static_cast<int32_t>(linear.w->rows);
    task.linear[task.n_linears++] = {linear.w->parts, format, rows, 0, 0, linear.bias, linear.y};
    n_rows += rows;
    task.slot_bytes = std::max(task.slot_bytes, List::slot_bytes(format));
  }
  gate.y != nullptr ? launch_rows<List, Lanes, 2>(task, n_rows / 2, queue) : launch_rows<List, Lanes, 1>(task, n_rows, queue);
}

using DecodeFormats256 = DecodeFormats<DecodeQ4_K, DecodeQ5_K, DecodeQ6_K>;
using DecodeFormats32 = DecodeFormats<DecodeQ4_0, DecodeQ4_1, DecodeQ8_0>;
using DecodeFormatsFloat = DecodeFormats<DecodeF32, DecodeF16, DecodeBF16>;

// One file each, for they compile long.
void decode_linears_256(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue);
void decode_linears_32(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue);
void decode_linears_float(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, const Queue& queue);

}  // namespace assay::backend::cuda
