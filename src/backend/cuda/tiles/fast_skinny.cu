// See fast_linear.h; the kernel is fast_skinny.cuh's. Each warp has a ring of stages in shared memory that is filled
// ahead, beyond the end of a tile and before the kernel waits for the one before it.
#include "backend/cuda/rows/usual_gate.cuh"
#include "backend/cuda/tiles/fast_linear.h"
#include "backend/cuda/tiles/fast_skinny.cuh"
#include "num/math.h"
#include "ops/rows/activation.h"

namespace assay::backend::cuda {
namespace {

using namespace fast_skinny_tile;

constexpr int kRingBytes =
    kRows * 16 * 2 * 24;  // of a warp: 24 steps of 16 elements; two blocks of threads share a multiprocessor
using HalvesTask = Task<const uint16_t*>;

// A warp's chunk of one tile after the other, on its way to shared memory.
template <int n_steps>
class Ring {
 public:
  using Source = const uint16_t*;
  static constexpr int kSteps = n_steps, kBytes = kRingBytes;
  static constexpr int kDepth = 16 * kSteps;  // elements of K of a stage
  static constexpr int kStageBytes = kRows * kDepth * 2, kRing = kRingBytes / kStageBytes;

  __device__ Ring(const HalvesTask& task, uint32_t memory, const Chunk& chunk)
      : task_(task), base_(memory), chunk_(chunk), at_(chunk.begin) {
    tile_ = chunk.begin == chunk.end ? task.n_tiles : static_cast<int>(blockIdx.x);
    find_rows();
#pragma unroll 1
    for (int i = 0; i < kRing - 1; ++i) fetch();
  }
  __device__ static int first_of(const Chunk& chunk) { return chunk.begin; }
  // The next stage is there, and one more on its way.
  __device__ void next() {
    __syncwarp();
    fetch();
    wait_copies<kRing - 1>();
    __syncwarp();
    stage_ = base_ + static_cast<uint32_t>(slot_ * kStageBytes);
    slot_ = (slot_ + 1) % kRing;
  }
  __device__ void read(int step, uint32_t (&w)[4]) const { read_step<kRowBytes>(stage_, step, w); }

 private:
  static constexpr int kRowBytes = 2 * kDepth,
                       kPieces = kRowBytes / 16;  // of a stage; a copy takes the pieces of kAtOnce rows
  static constexpr int kAtOnce = 32 / kPieces, kCopies = kRows / kAtOnce;

  __device__ void find_rows() {
    if (tile_ >= task_.n_tiles) return;
    const auto place = place_of(task_, tile_);
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
      const bool inside = at_ + lane % kPieces * 8 < chunk_.end;  // the chunk may end within a stage
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int row = kAtOnce * i + lane / kPieces;
        const uint32_t place = to + static_cast<uint32_t>(row * kRowBytes + (((lane % kPieces) ^ (row % 8)) * 16));
        copy_weights(place, inside ? rows_[i] + at_ : rows_[i], inside);
      }
      at_ += kDepth;
      if (at_ >= chunk_.end) {
        at_ = chunk_.begin;
        tile_ += static_cast<int>(gridDim.x);
        find_rows();
      }
    }
    slot_ahead_ = (slot_ahead_ + 1) % kRing;
    end_copies();
  }

  const HalvesTask& task_;
  const uint32_t base_;
  const Chunk chunk_;
  const uint16_t* rows_[kCopies];
  int at_, tile_, slot_ = 0, slot_ahead_ = 0;
  uint32_t stage_ = 0;
};

template <int kTiles>
using StagesOf = Ring<kTiles == 1 ? 8 : 4>;  // more tokens want more registers for each
template <class T, int kTiles>
using ColumnsOf = ColumnsAhead<T, kTiles, StagesOf<kTiles>::kSteps>;

template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads) skinny_kernel(const __grid_constant__ HalvesTask task) {
  multiply_tiles<T, ColumnsOf<T, kTiles>, StagesOf<kTiles>>(task);
}

template <class T, int kTiles>
void start_one(const HalvesTask& task, const Queue& queue) {
  start<ColumnsOf<T, kTiles>, StagesOf<kTiles>>(skinny_kernel<T, kTiles>, task, queue.n_multiprocessors, queue);
}
template <class T>
void start_for(const HalvesTask& task, int tile_tokens, const Queue& queue) {
  if (tile_tokens == 8) return start_one<T, 1>(task, queue);
  if (tile_tokens == 16) return start_one<T, 2>(task, queue);
  start_one<T, 4>(task, queue);
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
__global__ void gate_kernel(const float4* gate, const float4* up, ops::ActivationFunction activation, int64_t n_fours,
                            float4* y, uint2* out) {
  let_next_start();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  wait_for_previous();
  if (i >= n_fours) return;
  const float4 g = gate[i], u = up[i];
  const auto gated = [&](float a, float b) { return usual_activation(activation, a) * b; };
  const float4 v = {gated(g.x, u.x), gated(g.y, u.y), gated(g.z, u.z), gated(g.w, u.w)};
  if (y != nullptr) y[i] = v;
  out[i] = {T::rounded(v.x, v.y), T::rounded(v.z, v.w)};
}

}  // namespace

void fast_skinny(std::span<const FloatRows> runs, int tile_tokens, int64_t cols, const float* x, int64_t n_tokens,
                 const Queue& queue) {
  static_assert(kRunsMax == kFastRowsMax);
  HalvesTask task;
  task.x = x;
  task.cols = static_cast<int32_t>(cols);
  task.n_tokens = static_cast<int32_t>(n_tokens);
  for (const FloatRows& run : runs)
    task.add(static_cast<const uint16_t*>(run.w), run.n_rows, run.bias, run.y, run.y_width);
  if (task.n_tiles == 0 || n_tokens == 0) return;
  runs.front().dtype == tensor::DType::F16 ? start_for<FastF16>(task, tile_tokens, queue)
                                           : start_for<FastBF16>(task, tile_tokens, queue);
}

void round_to(tensor::DType dtype, const float* x, int64_t n, void* halves, const Queue& queue) {
  const auto kernel = dtype == tensor::DType::F16 ? round_kernel<FastF16> : round_kernel<FastBF16>;
  const int64_t n_pairs = n / 2;
  if (n_pairs == 0) return;
  launch(queue, kernel, dim3(static_cast<unsigned>((n_pairs + 255) / 256)), 256, 0, reinterpret_cast<const float2*>(x),
         n_pairs, static_cast<uint32_t*>(halves));
}

void gate_to(tensor::DType dtype, const float* gate, const float* up, ops::ActivationFunction activation, int64_t n,
             float* y, void* halves, const Queue& queue) {
  const auto kernel = dtype == tensor::DType::F16 ? gate_kernel<FastF16> : gate_kernel<FastBF16>;
  const int64_t n_fours = n / 4;
  if (n_fours == 0) return;
  launch(queue, kernel, dim3(static_cast<unsigned>((n_fours + 255) / 256)), 256, 0,
         reinterpret_cast<const float4*>(gate), reinterpret_cast<const float4*>(up), activation, n_fours,
         reinterpret_cast<float4*>(y), static_cast<uint2*>(halves));
}

}  // namespace assay::backend::cuda
