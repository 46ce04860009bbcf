// See fast_linear.h. Blocks of 8 warps stay on their multiprocessors and take tile after tile of 16 rows of up to 8 kTiles tokens, a warp one of
// the 8 chunks of them all: weights are the instruction's 16 rows, tokens its 8 columns, those that are not there are zeros. Each warp has a ring
// of stages in shared memory that is filled ahead, beyond the end of a tile and before the kernel waits for the one before it.
#include <algorithm>

#include "backend/cuda/tiles/fast_linear.h"
#include "backend/cuda/tiles/fast_types.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "num/math.h"
#include "ops/rows/activation.h"
#include "quant/activations.h"

namespace assay::backend::cuda {
namespace {

constexpr int kRows = 16, kChunks = 8, kThreads = 32 * kChunks;
constexpr int kRingBytes = kRows * 16 * 2 * 24;  // of a warp: 24 steps of 16 elements; two blocks of threads share a multiprocessor

struct FewRun {
  const uint16_t* w = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_width = 0;
  int32_t n_rows = 0, first_tile = 0;
};
struct FewTask {
  FewRun run[kFastRowsMax];
  const float* x = nullptr;
  int32_t n_runs = 0, cols = 0, n_tokens = 0, n_tiles = 0;
};

struct TilePlace {
  const FewRun* run;
  int row_0;
};
__device__ TilePlace place_of(const FewTask& task, int tile) {
  int i = 0;
  while (i + 1 < task.n_runs && tile >= task.run[i + 1].first_tile) ++i;
  return {&task.run[i], (tile - task.run[i].first_tile) * kRows};
}

// A warp's chunk of one tile after the other, on its way to shared memory. 16 bytes of row r lie at piece j ^ (r % 8), so that neither the
// copies nor the reads meet in a bank.
template <int kSteps>
class Ring {
 public:
  static constexpr int kDepth = 16 * kSteps;  // elements of K of a stage
  static constexpr int kStageBytes = kRows * kDepth * 2, kRing = kRingBytes / kStageBytes;

  __device__ Ring(const FewTask& task, std::byte* memory, int chunk)
      : task_(task), base_(shared_address(memory) + static_cast<uint32_t>(chunk * kRingBytes)) {
    const int n_blocks = task.cols / 32;
    begin_ = 32 * static_cast<int>(quant::chunk_begin(chunk, n_blocks));
    end_ = 32 * static_cast<int>(quant::chunk_begin(chunk + 1, n_blocks));
    at_ = begin_;
    tile_ = static_cast<int>(blockIdx.x);
    if (begin_ == end_) tile_ = task.n_tiles;
    find_rows();
#pragma unroll 1
    for (int i = 0; i < kRing - 1; ++i) fetch();
  }
  __device__ int begin() const { return begin_; }
  __device__ int end() const { return end_; }
  // The next stage is there, and one more on its way.
  __device__ void next() {
    __syncwarp();
    fetch();
    wait_copies<kRing - 1>();
    __syncwarp();
    stage_ = base_ + static_cast<uint32_t>(slot_ * kStageBytes);
    slot_ = (slot_ + 1) % kRing;
  }
  __device__ void read(int step, uint32_t (&w)[4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 16;
    const uint32_t from = stage_ + static_cast<uint32_t>(row * kRowBytes + (((2 * step + lane / 16) ^ (row % 8)) * 16));
    load_matrices(from, w);
  }

 private:
  static constexpr int kRowBytes = 2 * kDepth, kPieces = kRowBytes / 16;  // of a stage; a copy takes the pieces of kAtOnce rows
  static constexpr int kAtOnce = 32 / kPieces, kCopies = kRows / kAtOnce;

  __device__ void find_rows() {
    if (tile_ >= task_.n_tiles) return;
    const TilePlace place = place_of(task_, tile_);
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = place.row_0 + kAtOnce * i + lane / kPieces;
      rows_[i] = place.run->w + int64_t{min(row, place.run->n_rows - 1)} * task_.cols + lane % kPieces * 8;
    }
  }
  __device__ void fetch() {
    if (tile_ < task_.n_tiles) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const uint32_t to = base_ + static_cast<uint32_t>(slot_ahead_ * kStageBytes);
      const bool inside = at_ + lane % kPieces * 8 < end_;  // the chunk may end within a stage
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int row = kAtOnce * i + lane / kPieces;
        const uint32_t place = to + static_cast<uint32_t>(row * kRowBytes + (((lane % kPieces) ^ (row % 8)) * 16));
        copy_weights(place, inside ? rows_[i] + at_ : rows_[i], inside);
      }
      at_ += kDepth;
      if (at_ >= end_) {
        at_ = begin_;
        tile_ += static_cast<int>(gridDim.x);
        find_rows();
      }
    }
    slot_ahead_ = (slot_ahead_ + 1) % kRing;
    end_copies();
  }

  const FewTask& task_;
  const uint32_t base_;
  const uint16_t* rows_[kCopies];
  int begin_, end_, at_, tile_, slot_ = 0, slot_ahead_ = 0;
  uint32_t stage_ = 0;
};

// The tokens' part of a stage, as the instruction wants it: the lane's token, elements 2 (lane % 4) and 8 further of each step.
template <class T, int kTiles, int kSteps>
struct Columns {
  float2 low[kTiles][kSteps], high[kTiles][kSteps];
  __device__ void load(const FewTask& task, int token, int at, int end) {
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

template <int kTiles>
using ChunkSums = float[kChunks][8 * kTiles][kRows + 1];

// grid: as many blocks as run at once; 8 kTiles tokens.
template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads) few_kernel(const __grid_constant__ FewTask task) {
  extern __shared__ __align__(128) std::byte memory[];
  auto* chunk_sums = reinterpret_cast<ChunkSums<kTiles>*>(memory + kChunks * kRingBytes);  // two, by turns
  let_next_start();
  const int chunk = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4;
  const int token_0 = static_cast<int>(blockIdx.y) * 8 * kTiles, column = lane % 4 * 2;
  constexpr int kSteps = kTiles == 1 ? 8 : 4;  // more tokens want more registers for each
  constexpr int kDepth = Ring<kSteps>::kDepth;
  Ring<kSteps> ring(task, memory, chunk);
  wait_for_previous();
  Columns<T, kTiles, kSteps> x;
  x.load(task, token_0 + group, ring.begin() + column, ring.end());
  int side = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < task.n_tiles; tile += static_cast<int>(gridDim.x), side ^= 1) {
    float sum[kTiles][4] = {};
    for (int at = ring.begin(); at < ring.end(); at += kDepth) {
      ring.next();
      const Columns<T, kTiles, kSteps> now = x;
      x.load(task, token_0 + group, (at + kDepth < ring.end() ? at + kDepth : ring.begin()) + column, ring.end());
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (at + 16 * step >= ring.end()) break;
        uint32_t w[4];
        ring.read(step, w);
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
      for (int e = 0; e < 4; ++e) sums[chunk][8 * i + column + e % 2][group + e / 2 * 8] = sum[i][e];
    }
    __syncthreads();
    const TilePlace place = place_of(task, tile);
    for (int i = static_cast<int>(threadIdx.x); i < kRows * 8 * kTiles; i += kThreads) {
      const int token = i / kRows, row = place.row_0 + i % kRows;
      if (token_0 + token >= task.n_tokens || row >= place.run->n_rows) continue;
      float c[kChunks];
#pragma unroll
      for (int j = 0; j < kChunks; ++j) c[j] = sums[j][token][i % kRows];
      const float all = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
      place.run->y[(token_0 + token) * place.run->y_width + row] = place.run->bias == nullptr ? all : all + place.run->bias[row];
    }
  }
}

template <class T, int kTiles>
void start(const FewTask& task, const Queue& queue) {
  constexpr int kBytes = kChunks * kRingBytes + 2 * static_cast<int>(sizeof(ChunkSums<kTiles>));
  const int n = (task.n_tokens + 8 * kTiles - 1) / (8 * kTiles);
  const auto kernel = few_kernel<T, kTiles>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  launch(queue, kernel, dim3(static_cast<unsigned>(std::min(task.n_tiles, queue.n_multiprocessors)), static_cast<unsigned>(n)), kThreads, kBytes, task);
}
template <class T>
void start_for(const FewTask& task, const Queue& queue) {
  if (task.n_tokens <= 8) return start<T, 1>(task, queue);
  if (task.n_tokens <= 16) return start<T, 2>(task, queue);
  start<T, 4>(task, queue);
}

// Two elements a thread.
template <class T>
__global__ void round_kernel(const float2* x, int64_t n_pairs, uint32_t* out) {
  let_next_start();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  wait_for_previous();
  if (i >= n_pairs) return;
  const float2 v = x[i];
  out[i] = T::rounded(v.x, v.y);
}

// Four elements a thread.
template <class T>
__global__ void gate_kernel(const float4* gate, const float4* up, bool silu, int64_t n_fours, float4* y, uint2* out) {
  let_next_start();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  wait_for_previous();
  if (i >= n_fours) return;
  const float4 g = gate[i], u = up[i];
  const auto gated = [&](float a, float b) { return (silu ? num::silu(a) : num::gelu_tanh(a)) * b; };
  const float4 v = {gated(g.x, u.x), gated(g.y, u.y), gated(g.z, u.z), gated(g.w, u.w)};
  if (y != nullptr) y[i] = v;
  out[i] = {T::rounded(v.x, v.y), T::rounded(v.z, v.w)};
}

}  // namespace

void fast_few(std::span<const FloatRows> runs, int64_t cols, const float* x, int64_t n_tokens, const Queue& queue) {
  FewTask task;
  task.x = x;
  task.cols = static_cast<int32_t>(cols);
  task.n_tokens = static_cast<int32_t>(n_tokens);
  for (const FloatRows& run : runs) {
    task.run[task.n_runs++] = {static_cast<const uint16_t*>(run.w), run.bias, run.y, run.y_width, static_cast<int32_t>(run.n_rows), task.n_tiles};
    task.n_tiles += static_cast<int32_t>((run.n_rows + kRows - 1) / kRows);
  }
  if (task.n_tiles == 0 || n_tokens == 0) return;
  runs.front().dtype == tensor::DType::F16 ? start_for<FastF16>(task, queue) : start_for<FastBF16>(task, queue);
}

void round_to(tensor::DType dtype, const float* x, int64_t n, void* halves, const Queue& queue) {
  const auto kernel = dtype == tensor::DType::F16 ? round_kernel<FastF16> : round_kernel<FastBF16>;
  const int64_t n_pairs = n / 2;
  if (n_pairs == 0) return;
  launch(queue, kernel, dim3(static_cast<unsigned>((n_pairs + 255) / 256)), 256, 0, reinterpret_cast<const float2*>(x), n_pairs,
         static_cast<uint32_t*>(halves));
}

void gate_to(tensor::DType dtype, const float* gate, const float* up, ops::ActivationFunction activation, int64_t n, float* y, void* halves,
             const Queue& queue) {
  const auto kernel = dtype == tensor::DType::F16 ? gate_kernel<FastF16> : gate_kernel<FastBF16>;
  const int64_t n_fours = n / 4;
  if (n_fours == 0) return;
  launch(queue, kernel, dim3(static_cast<unsigned>((n_fours + 255) / 256)), 256, 0, reinterpret_cast<const float4*>(gate),
         reinterpret_cast<const float4*>(up), activation == ops::ActivationFunction::silu, n_fours, reinterpret_cast<float4*>(y),
         static_cast<uint2*>(halves));
}

}  // namespace assay::backend::cuda
