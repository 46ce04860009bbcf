// The kernel of fast_skinny (fast_linear.h) and of fast_skinny_blocks (fast_blocks.h). Blocks of 8 warps stay on their
// multiprocessors and take tile after tile of 16 rows of up to 8 kTiles tokens, a warp one of the 8 chunks of them all:
// weights are the instruction's 16 rows, tokens its 8 columns, those that are not there are zeros.
//
//   weights in memory ──Stages──► a warp's stage of halves ──ldmatrix──► mma, 16 x 8 x 16 ──► sums of 8 chunks
//   ──tree──► outputs
//                      (copied, or decoded from blocks)                   ▲ tokens, rounded on the way
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/tiles/fast_types.cuh"
#include "quant/activations.h"

namespace assay::backend::cuda::fast_skinny_tile {

inline constexpr int kRows = 16, kChunks = 8, kThreads = 32 * kChunks;
inline constexpr size_t kRunsMax = 4;  // of rows, multiplied together

// Source: where rows of weights lie.
template <class Source>
struct Run {
  Source w = {};
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_width = 0;
  int32_t n_rows = 0, first_tile = 0;
};
template <class Source>
struct Task {
  Run<Source> run[kRunsMax];
  const float* x = nullptr;
  int32_t n_runs = 0, cols = 0, n_tokens = 0, n_tiles = 0;

  void add(const Source& w, int64_t n_rows, const float* bias, float* y, int64_t y_width) {
    run[n_runs++] = {w, bias, y, y_width, static_cast<int32_t>(n_rows), n_tiles};
    n_tiles += static_cast<int32_t>((n_rows + kRows - 1) / kRows);
  }
};

template <class Source>
struct TilePlace {
  const Run<Source>* run;
  int row_0;
};
template <class Source>
__device__ TilePlace<Source> place_of(const Task<Source>& task, int tile) {
  int i = 0;
  while (i + 1 < task.n_runs && tile >= task.run[i + 1].first_tile) ++i;
  return {&task.run[i], (tile - task.run[i].first_tile) * kRows};
}

// A warp's chunk of K.
struct Chunk {
  int begin, end;
  __device__ Chunk(int chunk, int cols)
      : begin(32 * static_cast<int>(quant::chunk_begin(chunk, cols / 32))),
        end(32 * static_cast<int>(quant::chunk_begin(chunk + 1, cols / 32))) {}
};

// The weights of a step of 16 elements as the instruction wants them, from a stage of rows of kRowBytes. 16 bytes of
// row r lie at piece j ^ (r % 8), so that neither those who write them nor the reads meet in a bank.
template <int kRowBytes>
__device__ inline void read_step(uint32_t stage, int step, uint32_t (&w)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 16;
  load_matrices(stage + static_cast<uint32_t>(row * kRowBytes + (((2 * step + lane / 16) ^ (row % 8)) * 16)), w);
}

// The tokens' part of a stage, as the instruction wants it: the lane's token, elements 2 (lane % 4) and 8 further of
// each step.
template <class T, int kTiles, int kSteps>
struct Columns {
  float2 low[kTiles][kSteps], high[kTiles][kSteps];
  template <class Source>
  __device__ void load(const Task<Source>& task, int token, int at, int end) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const float* x = task.x + int64_t{token + 8 * tile} * task.cols + at;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const bool there = token + 8 * tile < task.n_tokens && at + 16 * step < end;
        low[tile][step] = there ? *reinterpret_cast<const float2*>(x + 16 * step) : make_float2(0.0f, 0.0f);
        high[tile][step] = there ? *reinterpret_cast<const float2*>(x + 16 * step + 8) : make_float2(0.0f, 0.0f);
      }
    }
  }
  __device__ uint2 of(int tile, int step) const {
    return {T::rounded(low[tile][step].x, low[tile][step].y), T::rounded(high[tile][step].x, high[tile][step].y)};
  }
};

// The same from memory, where the next stage's are loaded while one is multiplied.
template <class T, int n_tiles, int kSteps>
class ColumnsAhead {
 public:
  static constexpr int kTiles = n_tiles, kColsMax = 1 << 24;
  __host__ __device__ static constexpr int bytes(int) { return 0; }  // of shared memory, of a warp

  template <class Source>
  __device__ ColumnsAhead(const Task<Source>& task, uint32_t, int first, const Chunk& chunk)
      : first_(first), end_(chunk.end) {
    load(task, first);
  }
  template <class Source>
  __device__ Columns<T, kTiles, kSteps> take(const Task<Source>& task, int at) {
    const Columns<T, kTiles, kSteps> now = next_;
    load(task, at + 16 * kSteps < end_ ? at + 16 * kSteps : first_);
    return now;
  }

 private:
  template <class Source>
  __device__ void load(const Task<Source>& task, int at) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    next_.load(task, static_cast<int>(blockIdx.y) * 8 * kTiles + lane / 4, at + lane % 4 * 2, end_);
  }
  Columns<T, kTiles, kSteps> next_;
  const int first_, end_;
};

// One token's part of the warp's chunk, rounded once into shared memory; the other seven columns read 16 bytes of
// zeros.
template <class T, int kSteps>
class OneColumn {
 public:
  static constexpr int kTiles = 1, kColsMax = kFastOneColumnsMax;
  static_assert(kSteps % 2 == 0);
  __host__ __device__ static constexpr int bytes(int cols) { return ((cols / 32 + 7) / 8 * 32 + 32 * kSteps) * 2 + 16; }
  struct Window {
    uint32_t x[2 * kSteps];
    __device__ uint2 of(int, int step) const { return {x[2 * step], x[2 * step + 1]}; }
  };

  template <class Source>
  __device__ OneColumn(const Task<Source>& task, uint32_t memory, int first, const Chunk& chunk) : first_(first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t zeros = memory + static_cast<uint32_t>(bytes(task.cols) - 16);
    for (int i = first + 2 * lane; i < chunk.end; i += 64) {
      const float2 v = *reinterpret_cast<const float2*>(task.x + i);
      store(memory + static_cast<uint32_t>(2 * (i - first)), T::rounded(v.x, v.y));
    }
    if (lane < 4) store(zeros + static_cast<uint32_t>(4 * lane), 0);
    __syncwarp();
    from_ = lane % 8 == 0 ? memory + static_cast<uint32_t>(16 * (lane / 8)) : zeros;
    moves_ = lane % 8 == 0 ? 2 : 0;
  }
  template <class Source>
  __device__ Window take(const Task<Source>&, int at) const {
    Window window;
#pragma unroll
    for (int i = 0; i < kSteps / 2; ++i) {
      uint32_t two[4];  // steps
      load_matrices(from_ + static_cast<uint32_t>(moves_ * (at - first_ + 32 * i)), two);
#pragma unroll
      for (int j = 0; j < 4; ++j) window.x[4 * i + j] = two[j];
    }
    return window;
  }

 private:
  __device__ static void store(uint32_t to, uint32_t x) {
    asm volatile("st.shared.b32 [%0], %1;" : : "r"(to), "r"(x) : "memory");
  }
  uint32_t from_;  // the lane's row of the first two steps
  int first_, moves_;
};

template <int kTiles>
using ChunkSums = float[kChunks][8 * kTiles][kRows + 1];

// Stages: the weights of the warp's chunk of one tile after the other, 16 kSteps elements at a time, from
// first_of(chunk) on, which may be ahead of it. kBytes of shared memory a warp.
template <class Stages, int kTiles>
constexpr int kMemoryBytes = kChunks* Stages::kBytes + 2 * static_cast<int>(sizeof(ChunkSums<kTiles>));

// grid: as many blocks as run at once; 8 X::kTiles tokens. X: how their columns come.
template <class T, class X, class Stages>
__device__ inline void multiply_tiles(const Task<typename Stages::Source>& task) {
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kTiles = X::kTiles, kSteps = Stages::kSteps, kDepth = 16 * kSteps;
  auto* chunk_sums = reinterpret_cast<ChunkSums<kTiles>*>(memory + kChunks * Stages::kBytes);  // two, by turns
  let_next_start();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4;
  const int token_0 = static_cast<int>(blockIdx.y) * 8 * kTiles, column = lane % 4 * 2;
  const Chunk chunk(warp, task.cols);
  const int first = chunk.begin == chunk.end ? chunk.end : Stages::first_of(chunk);
  const uint32_t base = shared_address(memory);
  Stages stages(task, base + static_cast<uint32_t>(warp * Stages::kBytes), chunk);
  wait_for_previous();
  X x(task, base + static_cast<uint32_t>(kMemoryBytes<Stages, kTiles> + warp * X::bytes(task.cols)), first, chunk);
  int side = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < task.n_tiles; tile += static_cast<int>(gridDim.x), side ^= 1) {
    float sum[kTiles][4] = {};
    for (int at = first; at < chunk.end; at += kDepth) {
      stages.next();
      const auto now = x.take(task, at);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (at + 16 * step >= chunk.end) break;
        if (at + 16 * step < chunk.begin) continue;
        uint32_t w[4];
        stages.read(step, w);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const uint2 column = now.of(i, step);
          T::multiply(sum[i], w, column.x, column.y);
        }
      }
    }
    ChunkSums<kTiles>& sums = chunk_sums[side];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[warp][8 * i + column + e % 2][group + e / 2 * 8] = sum[i][e];
    }
    __syncthreads();
    const auto place = place_of(task, tile);
    for (int i = static_cast<int>(threadIdx.x); i < kRows * 8 * kTiles; i += kThreads) {
      const int token = i / kRows, row = place.row_0 + i % kRows;
      if (token_0 + token >= task.n_tokens || row >= place.run->n_rows) continue;
      float c[kChunks];
#pragma unroll
      for (int j = 0; j < kChunks; ++j) c[j] = sums[j][token][i % kRows];
      const float all = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
      place.run->y[(token_0 + token) * place.run->y_width + row] =
          place.run->bias == nullptr ? all : all + place.run->bias[row];
    }
  }
}

// n_at_once: blocks of threads that stay on the device.
template <class X, class Stages>
void start(void (*kernel)(Task<typename Stages::Source>), const Task<typename Stages::Source>& task, int n_at_once,
           const Queue& queue) {
  const auto bytes_of = [](int cols) { return kMemoryBytes<Stages, X::kTiles> + kChunks * X::bytes(cols); };
  const int n = (task.n_tokens + 8 * X::kTiles - 1) / (8 * X::kTiles);
  // One value for all: it is the function's, and a graph may hold launches of other widths.
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes_of(X::kColsMax));
  launch(queue, kernel, dim3(static_cast<unsigned>(std::min(task.n_tiles, n_at_once)), static_cast<unsigned>(n)),
         kThreads, static_cast<size_t>(bytes_of(task.cols)), task);
}

}  // namespace assay::backend::cuda::fast_skinny_tile
