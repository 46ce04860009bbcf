// What the prefill kernels share: a block of 8 warps makes 128 rows x 128 columns of a product, where a column is a
// plane of a token's activations; a warp 32 rows x 64 columns, both planes of its tokens. K is walked in the contract's
// order, one chain an output in a register. Of the tree at most three finished sums wait: two in shared memory, the sum
// of the first four chunks in y.
//
//               columns 0 .. 63     64 .. 127          warp w: rows 32 (w / 2) .., columns 64 (w % 2) ..
//   rows 0      warp 0              warp 1             a thread: 2 row tiles x 8 column tiles (half as many with two planes) x 4 outputs
//   rows 32     warp 2              warp 3
//   rows 64     warp 4              warp 5             K: stages of 128 weights, packed as in the file, copied to shared memory ahead
//   rows 96     warp 6              warp 7                --> fragments --> mma.sync: integers --> float terms --> chain, registers
#pragma once

#include "backend/cuda/experts/expert_groups.h"
#include "backend/cuda/kernels/tile_layout.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/tiles/mma_steps.cuh"
#include "num/lanes.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

inline constexpr int kMmaThreads = 256;

struct MmaTask {
  Parts w;
  int32_t n_rows = 0, first_tile = 0;
  const float* bias = nullptr;
  float* y = nullptr;
};
struct MmaTasks {
  MmaTask task[kLinearsMax];
  int32_t n = 0, n_blocks = 0, n_tokens = 0;
  int32_t n_token_tiles = 0, n_tiles = 0;
  quant::Activations x;
  ExpertTiles experts;  // of products by experts: one task, whose rows are those of all of them
};

// Where a thread stands in its block's tile.
template <int planes>
struct MmaPlace {
  static constexpr int kPlanes = planes;
  static constexpr int kTokens = kTileColumns / kPlanes;  // of the tile
  int lane, warp_row, warp_column;                        // first row and column of the warp
  int row_0, token_0;                                     // of the tile

  // Row and token of element e of the outputs of row tile m and column tile n.
  __device__ int row(int m, int e) const { return row_0 + warp_row + 16 * m + lane / 4 + 8 * (e / 2); }
  __device__ int token(int n, int e) const { return token_0 + warp_column / kPlanes + 8 * n + 2 * (lane % 4) + e % 2; }
  // Token (within the tile) and plane of a column of the tile.
  __device__ static int token_of(int column) { return kPlanes == 1 ? column : column / 64 * 32 + column % 32; }
  __device__ static int plane_of(int column) { return kPlanes == 1 ? 0 : column / 32 % 2; }
};

template <int kPlanes>
__device__ MmaPlace<kPlanes> place_of(const MmaTasks& tasks, const MmaTask*& task) {
  const int tile = static_cast<int>(blockIdx.x);
  int i = 0;
  while (i + 1 < tasks.n && tile >= tasks.task[i + 1].first_tile) ++i;
  task = &tasks.task[i];
  const int warp = static_cast<int>(threadIdx.x) / 32, at = tile - task->first_tile;
  return {static_cast<int>(threadIdx.x) % 32, warp / 2 * 32, warp % 2 * 64, at / tasks.n_token_tiles * kTileRows,
          at % tasks.n_token_tiles * MmaPlace<kPlanes>::kTokens};
}

template <int kPlanes>
inline constexpr size_t kWaitingBytes = tile_waiting_bytes(kPlanes);

// Sums of a warp's outputs: 2 tiles of 16 rows, kN of 8 tokens.
template <int kPlanes>
struct MmaSums {
  static constexpr int kN = 8 / kPlanes;
  float c[2][kN][4];

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0.0f;
    }
  }

  // Chunk `chunk` has ended: puts its sum into the tree and begins the next one's.
  __device__ void end_chunk(int chunk, float4* waiting, const MmaTask& task, const MmaPlace<kPlanes>& at,
                            int n_tokens) {
    float4* first = waiting + threadIdx.x;
    float4* second = first + 2 * kN * kMmaThreads;
    if (chunk % 2 == 0) {
      put(first);
    } else {
      add(first);
      if (chunk % 4 == 1) {
        put(second);
      } else {
        add(second);
        if (chunk == 3) put_y(task, at, n_tokens);
        if (chunk == 7) add_y(task, at, n_tokens);
      }
    }
    clear();
  }

 private:
  __device__ void put(float4* to) const {
#pragma unroll
    for (int i = 0; i < 2 * kN; ++i)
      to[i * kMmaThreads] = {c[i / kN][i % kN][0], c[i / kN][i % kN][1], c[i / kN][i % kN][2], c[i / kN][i % kN][3]};
  }
  __device__ void add(const float4* from) {
#pragma unroll
    for (int i = 0; i < 2 * kN; ++i) {
      const float4 v = from[i * kMmaThreads];
      float(&sum)[4] = c[i / kN][i % kN];
      sum[0] = v.x + sum[0], sum[1] = v.y + sum[1], sum[2] = v.z + sum[2], sum[3] = v.w + sum[3];
    }
  }
  __device__ void put_y(const MmaTask& task, const MmaPlace<kPlanes>& at, int n_tokens) const {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int token = at.token(n, e);
        float* y = task.y + int64_t{token} * task.n_rows;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = at.row(i / 2, i % 2 * 2);
          if (row < task.n_rows && token < n_tokens) y[row] = c[i / 2][n][i % 2 * 2 + e];
        }
      }
    }
  }
  // The first half of the tree comes back from y; all of it is on its way before the first sum.
  __device__ void add_y(const MmaTask& task, const MmaPlace<kPlanes>& at, int n_tokens) {
    float bias[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      bias[i] =
          task.bias != nullptr && at.row(i / 2, i % 2 * 2) < task.n_rows ? task.bias[at.row(i / 2, i % 2 * 2)] : 0.0f;
#pragma unroll
    for (int begin = 0; begin < kN; begin += 4) {
      float half[4][2][4];
#pragma unroll
      for (int item = 0; item < 32; ++item) {
        const int n = item / 8, e = item / 4 % 2, i = item % 4, row = at.row(i / 2, i % 2 * 2),
                  token = at.token(begin + n, e);
        if (row < task.n_rows && token < n_tokens) half[n][e][i] = task.y[int64_t{token} * task.n_rows + row];
      }
#pragma unroll
      for (int item = 0; item < 32; ++item) {
        const int n = item / 8, e = item / 4 % 2, i = item % 4, row = at.row(i / 2, i % 2 * 2),
                  token = at.token(begin + n, e);
        const float whole = half[n][e][i] + c[i / 2][begin + n][i % 2 * 2 + e];
        if (row < task.n_rows && token < n_tokens)
          task.y[int64_t{token} * task.n_rows + row] = task.bias == nullptr ? whole : whole + bias[i];
      }
    }
  }
};

// Activations of a stage: a column is 128 bytes, its pieces of 16 exchanged so that neighbouring columns lie in
// different banks.
template <int kPlanes>
struct MmaColumns {
  const int8_t* from[kPlanes];  // of the thread's first column and piece
  uint32_t place;               // of that in a stage
  int n_tokens;                 // of the tile, counted from the thread's first

  __device__ MmaColumns(const MmaTasks& tasks, const MmaPlace<kPlanes>& at) {
    const int column = static_cast<int>(threadIdx.x) / 8, piece = static_cast<int>(threadIdx.x) % 8;
    n_tokens = tasks.n_tokens - at.token_0 - column;
    place = static_cast<uint32_t>(128 * column + 16 * (piece ^ (column & 7)));
    const int64_t offset = int64_t{at.token_0 + column} * tasks.x.k + 16 * piece;
    from[0] = tasks.x.q + offset;
    if constexpr (kPlanes == 2) from[1] = tasks.x.l + offset;
  }
  // Stage i; what lies outside is zeros.
  __device__ void copy(uint32_t stage, const quant::Activations& x, int i) const {
    const bool k_inside = int64_t{i} * kStageWeights + 16 * (static_cast<int>(threadIdx.x) % 8) < x.k;
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // 32 columns further each: the next tokens, or the other plane
      const int token = 32 * (j / kPlanes);
      const bool inside = k_inside && token < n_tokens;
      const int8_t* source = from[j % kPlanes] + int64_t{token} * x.k + i * kStageWeights;
      copy_16(stage + place + 32 * 128 * j, inside ? source : x.q, inside);
    }
  }
};
// The fragments of column tiles `pair` and `pair` + 1, weights 32 * run ...
__device__ inline void load_columns(uint32_t columns, int lane, int first_column, int run, uint32_t (&b)[4]) {
  const int column = first_column + lane / 16 * 8 + lane % 8, piece = 2 * run + lane / 8 % 2;
  load_matrices(columns + 128 * column + 16 * (piece ^ (column & 7)), b);
}

// Tiles of all tasks, one after the other.
inline void number_tiles(MmaTasks& tasks, int columns = kTileColumns) {
  const int tokens = columns / tasks.x.planes;
  tasks.n_token_tiles = (tasks.n_tokens + tokens - 1) / tokens;
  tasks.n_tiles = 0;
  for (int i = 0; i < tasks.n; ++i) {
    tasks.task[i].first_tile = tasks.n_tiles;
    tasks.n_tiles += (tasks.task[i].n_rows + kTileRows - 1) / kTileRows * tasks.n_token_tiles;
  }
}
// Starts a kernel over all tiles.
template <class Kernel>
void launch_tiles(Kernel kernel, MmaTasks& tasks, size_t shared_bytes, const Queue& queue) {
  require(allow_shared(kernel, shared_bytes), "shared memory");
  number_tiles(tasks);
  launch(queue, kernel, dim3(static_cast<unsigned>(tasks.n_tiles)), kMmaThreads, shared_bytes, tasks);
}

// Kernel: of a format and a number of planes, run over one tile.
template <class Kernel>
__global__ void __launch_bounds__(kMmaThreads, 1) mma_kernel(const __grid_constant__ MmaTasks tasks) {
  extern __shared__ __align__(128) std::byte memory[];
  let_next_start();
  const MmaTask* task;
  const auto place = place_of<Kernel::Place::kPlanes>(tasks, task);
  wait_for_previous();
  Kernel(tasks, *task, place, memory).run();
}
template <template <class, int> class Kernel, class Format>
void launch_format(MmaTasks& tasks, const Queue& queue) {
  tasks.x.planes == 1 ? launch_tiles(mma_kernel<Kernel<Format, 1>>, tasks, Kernel<Format, 1>::kBytes, queue)
                      : launch_tiles(mma_kernel<Kernel<Format, 2>>, tasks, Kernel<Format, 2>::kBytes, queue);
}

// What all products by tiles begin with.
inline MmaTasks mma_tasks(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens) {
  MmaTasks tasks;
  for (const LinearTask& linear : linears)
    tasks.task[tasks.n++] = {linear.w->parts, static_cast<int32_t>(linear.w->rows), 0, linear.bias, linear.y};
  tasks.n_blocks = static_cast<int32_t>(x.k / x.block());
  tasks.n_tokens = static_cast<int32_t>(n_tokens);
  tasks.x = x;
  return tasks;
}

// Of a format of blocks of 32, of superblocks.
void linear_mma_32(tensor::DType dtype, MmaTasks& tasks, const Queue& queue);
void linear_mma_256(tensor::DType dtype, MmaTasks& tasks, const Queue& queue);
void linear_wgmma_32(tensor::DType dtype, MmaTasks& tasks, const Hopper& hopper,
                     const Queue& queue);  // the same on Hopper
// One format of superblocks, or Q6_K with one of the others.
void linear_wgmma_256(std::span<const LinearTask> linears, int columns, MmaTasks& tasks, const Hopper& hopper,
                      const Queue& queue);
// By experts; columns: of a tile, 64 or 128.
void expert_wgmma_32(tensor::DType dtype, MmaTasks& tasks, const Hopper& hopper, const Queue& queue);
void expert_wgmma_256(tensor::DType dtype, MmaTasks& tasks, int columns, const Hopper& hopper, const Queue& queue);

}  // namespace assay::backend::cuda
