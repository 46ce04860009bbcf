// causal_conv on the device (ops/state/causal_conv.h): a warp has a unit of 32 columns of one sequence, a lane one
// column.
//
//             columns 0 .. 31     32 .. 63                       a lane: weights w[0 .. K - 1] and the last K - 1 of x
//   token 0   warp 0  | | | |     warp 1  | | | |     ..         in registers; kAhead tokens of x are on their way
//   while token 1           v v v v             v v v v                it computes
//     ..      (block x: units, block y: sequences of the batch)
//
// The lanes beyond the last column walk along, with zeros, as all lanes look for the sequence's tokens together.
#include "backend/cuda/rows/state_ops.h"
#include "backend/cuda/rows/state_walk.cuh"
#include "num/lanes.h"
#include "ops/state/causal_conv.h"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 128, kUnits = kThreads / 32;
constexpr int kAhead = 8;
static_assert(ops::kConvColumns == 32);

// kWidth: of the kernel; 0: any up to kConvKernelMax, with its past in local memory.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) conv_kernel(ConvTask task) {
  constexpr int kMost = kWidth == 0 ? static_cast<int>(ops::kConvKernelMax) : kWidth;
  const int width = kWidth == 0 ? static_cast<int>(task.kernel) : kWidth, n_kept = width - 1;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t unit = int64_t{blockIdx.x} * kUnits + threadIdx.x / 32, column = unit * 32 + lane;
  if (unit * 32 >= task.d) return;
  const StateWalk walk(task.state, static_cast<int>(blockIdx.y));
  if (!walk.has_tokens()) return;
  const bool is_column = column < task.d;
  float w[kMost], past[kMost];
  const float bias = is_column && task.bias != nullptr ? task.bias[column] : 0.0f;
#pragma unroll
  for (int k = 0; k < kMost; ++k) w[k] = is_column && k < width ? task.w[column * width + k] : 0.0f;
  const int64_t first = unit * n_kept * 32 + lane;
  const float* from = walk.from();
#pragma unroll
  for (int k = 0; k < kMost; ++k) past[k] = from != nullptr && k < n_kept ? from[first + k * 32] : 0.0f;
  const auto keep = [&](float* place) {
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k < n_kept) place[first + k * 32] = past[k];
    }
  };
  const auto token = [&](float x) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k < n_kept) sum = num::fma(w[k], past[k], sum);
    }
    sum = num::fma(w[n_kept], x, sum);
#pragma unroll
    for (int k = 0; k + 1 < kMost; ++k) {
      if (k + 1 < n_kept) past[k] = past[k + 1];
    }
    if (n_kept > 0) past[n_kept - 1] = x;
    return task.bias == nullptr ? sum : sum + bias;
  };
  walk.run([&](const StatePiece& piece) {
    const float* x = task.x + piece.begin * task.d + column;
    float* y = task.y + piece.begin * task.d + column;
    const auto read = [&](int t) { return is_column && t < piece.n ? x[t * task.d] : 0.0f; };
    float next[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) next[i] = read(i);
    for (int t = 0; t < piece.n; t += kAhead) {
      float now[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) now[i] = next[i], next[i] = read(t + kAhead + i);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (t + i >= piece.n) continue;
        const float out = token(now[i]);
        if (is_column) y[(t + i) * task.d] = out;
      }
    }
    if (piece.slot > 0) keep(walk.checkpoint(piece.slot));
  });
  keep(walk.to());
}

}  // namespace

void causal_conv(const ConvTask& task, const Queue& queue) {
  if (task.state.n_tokens == 0) return;
  const int64_t n_units = (task.d + 31) / 32;
  const dim3 grid(static_cast<unsigned>((n_units + kUnits - 1) / kUnits),
                  static_cast<unsigned>(task.state.n_walkers()));
  switch (task.kernel) {
    case 3: return conv_kernel<3><<<grid, kThreads, 0, queue.stream>>>(task);
    case 4: return conv_kernel<4><<<grid, kThreads, 0, queue.stream>>>(task);
    default: return conv_kernel<0><<<grid, kThreads, 0, queue.stream>>>(task);
  }
}

}  // namespace assay::backend::cuda
