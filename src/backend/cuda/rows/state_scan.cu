// selective_scan on the device (ops/state/selective_scan.h): a group of lanes has one row p of one head's h, an element
// n in lane n % 32, as Lanes32 has them.
//
//             lane 0   1  ..  31
//   n 0..31     h      h       h    <- b[n], c[n]        a warp: one row, or two where d_state is at most 16 (lanes 16
//   n 32..63    h      h       h    <- b[n], c[n]        to 31 of Lanes32 are then the zeros that they began with)
//     ..        v      v       v
//              sum    sum     sum   -> fold -> y[p]      h stays in registers from the first token to the last
//
// The sums of kTokens tokens are folded together, whose inputs were read together.
//   block x: rows of all heads; block y: sequences of the batch
#include "backend/cuda/rows/state_ops.h"
#include "backend/cuda/rows/state_walk.cuh"
#include "num/lanes.h"
#include "num/math.h"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTokens = 4;

// Where a row's parts of the inputs are.
struct ScanRow {
  __device__ ScanRow(const ScanTask& task, int64_t i)
      : row(i), head(static_cast<int>(i / task.head_dim)),
        group(int64_t{head / (task.n_heads / task.n_groups)} * task.d_state),
        width(int64_t{task.n_heads} * task.head_dim), group_width(int64_t{task.n_groups} * task.d_state),
        a(task.a + int64_t{head} * (task.a_by_state ? task.d_state : 1)),
        skip(task.d == nullptr ? 0.0f : task.d[head]) {}
  int64_t row;
  int head;
  int64_t group, width, group_width;
  const float* a;
  float skip;
};

// kEach: elements of h a lane has, 0: any number, which stay in memory; kLanes: of a row.
template <int kEach, int kLanes>
__global__ void __launch_bounds__(kThreads) scan_kernel(ScanTask task) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t n_rows = int64_t{task.n_heads} * task.head_dim,
                i_row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const StateWalk walk(task.state, static_cast<int>(blockIdx.y));
  if (!walk.has_tokens()) return;
  const bool is_row = i_row < n_rows;  // the others walk along with the last row's numbers
  const ScanRow at(task, is_row ? i_row : n_rows - 1);
  const int n_each = kEach == 0 ? (task.d_state + kLanes - 1) / kLanes : kEach;
  const auto is_element = [&](int i) { return i * kLanes + lane < task.d_state; };
  const int64_t first = at.row * task.d_state + lane;
  float kept[kEach == 0 ? 1 : kEach], a[kEach == 0 ? 1 : kEach];
  const float* from = walk.from();
  float* const to = walk.to();
  if constexpr (kEach == 0) {
    for (int i = 0; i < n_each; ++i) {
      if (is_row && is_element(i)) to[first + i * kLanes] = from == nullptr ? 0.0f : from[first + i * kLanes];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      kept[i] = from != nullptr && is_element(i) ? from[first + i * kLanes] : 0.0f;
      a[i] = task.a_by_state ? (is_element(i) ? at.a[i * kLanes + lane] : 0.0f) : at.a[0];
    }
  }
  const auto keep = [&](float* place) {
    for (int i = 0; i < n_each; ++i) {
      if (!is_row || !is_element(i)) continue;
      if constexpr (kEach == 0) {
        place[first + i * kLanes] = to[first + i * kLanes];
      } else {
        place[first + i * kLanes] = kept[i];
      }
    }
  };
  walk.run([&](const StatePiece& piece) {
    for (int done = 0; done < piece.n; done += kTokens) {
      float x[kTokens], sums[kTokens];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        sums[t] = 0.0f, x[t] = 0.0f;
        if (done + t >= piece.n) continue;
        const int64_t token = piece.begin + done + t;
        x[t] = task.x[token * at.width + at.row];
        const float dt = task.dt[token * task.n_heads + at.head], u = dt * x[t];
        const float *b = task.b + token * at.group_width + at.group + lane,
                    *c = task.c + token * at.group_width + at.group + lane;
        const float e_of_head = task.a_by_state ? 0.0f : num::exp(dt * at.a[0]);
        const auto step = [&](int i, float h, float of_a) {
          h = num::fma(h, task.a_by_state ? num::exp(dt * of_a) : e_of_head, u * b[i * kLanes]);
          sums[t] = num::fma(c[i * kLanes], h, sums[t]);
          return h;
        };
        if constexpr (kEach == 0) {
          for (int i = 0; i < n_each; ++i) {
            if (!is_row || !is_element(i)) continue;
            float& h = to[first + i * kLanes];
            h = step(i, h, task.a_by_state ? at.a[i * kLanes + lane] : at.a[0]);
          }
        } else {
#pragma unroll
          for (int i = 0; i < kEach; ++i) {
            if (is_element(i)) kept[i] = step(i, kept[i], a[i]);
          }
        }
      }
      if (kLanes == 16) {
#pragma unroll
        for (int t = 0; t < kTokens; ++t) sums[t] = sums[t] + 0.0f;  // Lanes32's other half
      }
#pragma unroll
      for (int width = kLanes / 2; width >= 1; width /= 2) {
#pragma unroll
        for (int t = 0; t < kTokens; ++t) sums[t] = sums[t] + __shfl_down_sync(kWholeWarp, sums[t], width, kLanes);
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        if (lane != 0 || !is_row || done + t >= piece.n) continue;
        task.y[(piece.begin + done + t) * at.width + at.row] =
            task.d == nullptr ? sums[t] : num::fma(at.skip, x[t], sums[t]);
      }
    }
    if (piece.slot > 0) keep(walk.checkpoint(piece.slot));
  });
  if constexpr (kEach != 0) keep(to);
}

template <int kEach, int kLanes>
void start(const ScanTask& task, const Queue& queue) {
  const int64_t n_rows = int64_t{task.n_heads} * task.head_dim, per_block = kThreads / kLanes;
  const dim3 grid(static_cast<unsigned>((n_rows + per_block - 1) / per_block),
                  static_cast<unsigned>(task.state.n_walkers()));
  scan_kernel<kEach, kLanes><<<grid, kThreads, 0, queue.stream>>>(task);
}

}  // namespace

void selective_scan(const ScanTask& task, const Queue& queue) {
  if (task.state.n_tokens == 0) return;
  if (task.d_state <= 16) return start<1, 16>(task, queue);
  if (task.d_state <= 32) return start<1, 32>(task, queue);
  if (task.d_state <= 64) return start<2, 32>(task, queue);
  if (task.d_state <= 128) return start<4, 32>(task, queue);
  if (task.d_state <= 256) return start<8, 32>(task, queue);
  return start<0, 32>(task, queue);
}

}  // namespace assay::backend::cuda
