// delta_rule on the device (ops/state/delta_rule.h): a block is a warp and has 32 columns of one head's S, a lane one
// column.
//
//              lane 0   1   2  ..  31
//   row 0        S      S   S       S     <- k[0], q[0], decay     of the token at work and of the next one, in shared
//   row 1        S      S   S       S     <- k[1], q[1]            memory; those of the one after it are on their way
//    ..          |      |   |       |
//   row d_k - 1  S      S   S       S        S stays in registers from the first token to the last
//                v      v   v       v
//                d[j] = strength (v[j] - sum), y[j]
//
// Down the rows once a token: the correction by this token and its y, then the decay and the sum of the next one, two
// chains of sums at a time. Only before the first and after the last token of a piece they are apart.
//   block x: heads by 32 columns of d_v; block y: sequences of the batch
#include "backend/cuda/rows/floats.cuh"
#include "backend/cuda/rows/state_ops.h"
#include "backend/cuda/rows/state_walk.cuh"
#include "num/lanes.h"

namespace assay::backend::cuda {
namespace {

// Where a head's parts of the rows are, and its columns.
struct DeltaHead {
  __device__ DeltaHead(const DeltaTask& task)
      : n_blocks((task.d_v + 31) / 32),
        head(static_cast<int>(blockIdx.x) / n_blocks),
        column(static_cast<int>(blockIdx.x) % n_blocks * 32 + static_cast<int>(threadIdx.x)) {
    const int key_head = task.tiled ? head % task.n_key_heads : head / (task.n_heads / task.n_key_heads);
    key_width = int64_t{task.n_key_heads} * task.d_k;
    value_width = int64_t{task.n_heads} * task.d_v;
    key = int64_t{key_head} * task.d_k;
    value = int64_t{head} * task.d_v + column;
    decay_width = task.decay_by_row ? int64_t{task.n_heads} * task.d_k : task.n_heads;
    decay = task.decay_by_row ? int64_t{head} * task.d_k : head;
    state = int64_t{head} * task.d_k * task.d_v + column;
  }
  int n_blocks, head, column;
  int64_t key_width, value_width, decay_width;  // of rows
  int64_t key, value, decay, state;             // where this head's begin
};

// d_k of any size: S where it lies at the end, no lane sees another's.
__global__ void __launch_bounds__(32) delta_any_kernel(DeltaTask task) {
  const StateWalk walk(task.state, static_cast<int>(blockIdx.y));
  if (!walk.has_tokens()) return;
  const DeltaHead at(task);
  const bool is_column = at.column < task.d_v;
  float* s = walk.to() + at.state;
  const float* from = walk.from();
  for (int i = 0; is_column && i < task.d_k; ++i)
    s[int64_t{i} * task.d_v] = from == nullptr ? 0.0f : from[at.state + int64_t{i} * task.d_v];
  walk.run([&](const StatePiece& piece) {
    for (int t = piece.begin; is_column && t < piece.begin + piece.n; ++t) {
      const float *q = task.q + t * at.key_width + at.key, *k = task.k + t * at.key_width + at.key,
                  *decay = task.decay + t * at.decay_width + at.decay;
      float d = 0.0f, o = 0.0f;
      for (int i = 0; i < task.d_k; ++i) {
        const float kept = s[int64_t{i} * task.d_v] * decay[task.decay_by_row ? i : 0];
        s[int64_t{i} * task.d_v] = kept;
        d = num::fma(kept, k[i], d);
      }
      d = task.strength[int64_t{t} * task.n_heads + at.head] * (task.v[t * at.value_width + at.value] - d);
      for (int i = 0; i < task.d_k; ++i) {
        const float now = num::fma(k[i], d, s[int64_t{i} * task.d_v]);
        s[int64_t{i} * task.d_v] = now;
        o = num::fma(now, q[i], o);
      }
      task.y[t * at.value_width + at.value] = o;
    }
    if (piece.slot == 0 || !is_column) return;
    float* to = walk.checkpoint(piece.slot) + at.state;
    for (int i = 0; i < task.d_k; ++i) to[int64_t{i} * task.d_v] = s[int64_t{i} * task.d_v];
  });
}

// What a token gives all lanes, each holding some of it on the way to shared memory, and what it gives this one.
template <int kRows, bool kByRow>
struct DeltaToken {
  static constexpr int kEach = kRows < 32 ? 1 : kRows / 32;
  float k[kEach], q[kEach], e[kByRow ? kEach : 1], v, strength;
  __device__ void read(const DeltaTask& task, const DeltaHead& at, int64_t t) {
    const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = i * 32 + lane;
      if (row >= kRows) continue;
      k[i] = task.k[t * at.key_width + at.key + row];
      q[i] = task.q[t * at.key_width + at.key + row];
      if (kByRow) e[i] = task.decay[t * at.decay_width + at.decay + row];
    }
    if (!kByRow) e[0] = task.decay[t * at.decay_width + at.decay];
    strength = task.strength[t * task.n_heads + at.head];
    v = at.column < task.d_v ? task.v[t * at.value_width + at.value] : 0.0f;
  }
};

template <int kRows, bool kByRow>
struct DeltaShared {
  alignas(16) float k[2][kRows], q[2][kRows], e[2][kByRow ? kRows : 4];
  __device__ void put(int at, const DeltaToken<kRows, kByRow>& token) {
    const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < DeltaToken<kRows, kByRow>::kEach; ++i) {
      const int row = i * 32 + lane;
      if (row >= kRows) continue;
      k[at][row] = token.k[i];
      q[at][row] = token.q[i];
      if (kByRow) e[at][row] = token.e[i];
    }
  }
};

template <int kRows, bool kByRow>
__global__ void __launch_bounds__(32) delta_kernel(DeltaTask task) {
  __shared__ DeltaShared<kRows, kByRow> shared;
  const StateWalk walk(task.state, static_cast<int>(blockIdx.y));
  if (!walk.has_tokens()) return;
  const DeltaHead at(task);
  const bool is_column = at.column < task.d_v;
  float s[kRows];
  const float* from = walk.from();
#pragma unroll
  for (int i = 0; i < kRows; ++i) s[i] = from != nullptr && is_column ? from[at.state + int64_t{i} * task.d_v] : 0.0f;
  const auto keep = [&](float* place) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (is_column) place[at.state + int64_t{i} * task.d_v] = s[i];
    }
  };
  walk.run([&](const StatePiece& piece) {
    const int end = piece.begin + piece.n;
    DeltaToken<kRows, kByRow> now, next, after;  // of now and next only what is this lane's is read here
    now.read(task, at, piece.begin);
    shared.put(0, now);
    if (piece.n > 1) next.read(task, at, piece.begin + 1), shared.put(1, next);
    __syncwarp();
    float d = 0.0f;
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      float k[4], e[4] = {now.e[0], now.e[0], now.e[0], now.e[0]};
      read_4(shared.k[0] + i, k);
      if (kByRow) read_4(shared.e[0] + i, e);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i + j] = s[i + j] * e[j], d = num::fma(s[i + j], k[j], d);
    }
    int here = 0;
    for (int t = piece.begin; t + 1 < end; ++t) {
      if (t + 2 < end) after.read(task, at, t + 2);
      d = now.strength * (now.v - d);
      const float *k_here = shared.k[here], *q_here = shared.q[here], *k_next = shared.k[1 - here];
      float o = 0.0f, d_next = 0.0f;
#pragma unroll
      for (int i = 0; i < kRows; i += 4) {
        float k[4], q[4], k_n[4], e[4] = {next.e[0], next.e[0], next.e[0], next.e[0]};
        read_4(k_here + i, k), read_4(q_here + i, q), read_4(k_next + i, k_n);
        if (kByRow) read_4(shared.e[1 - here] + i, e);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float x = num::fma(k[j], d, s[i + j]);
          o = num::fma(x, q[j], o);
          s[i + j] = x * e[j];
          d_next = num::fma(s[i + j], k_n[j], d_next);
        }
      }
      if (is_column) task.y[t * at.value_width + at.value] = o;
      d = d_next;
      now = next, next = after;
      __syncwarp();  // all have read
      if (t + 2 < end) shared.put(here, after);
      __syncwarp();
      here = 1 - here;
    }
    d = now.strength * (now.v - d);
    float o = 0.0f;
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      float k[4], q[4];
      read_4(shared.k[here] + i, k), read_4(shared.q[here] + i, q);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i + j] = num::fma(k[j], d, s[i + j]), o = num::fma(s[i + j], q[j], o);
    }
    if (is_column) task.y[(end - 1) * at.value_width + at.value] = o;
    if (piece.slot > 0) keep(walk.checkpoint(piece.slot));
    __syncwarp();  // the next piece begins in the same memory
  });
  keep(walk.to());
}

template <int kRows>
void start(const DeltaTask& task, const dim3& grid, const Queue& queue) {
  if (task.decay_by_row) {
    delta_kernel<kRows, true><<<grid, 32, 0, queue.stream>>>(task);
  } else {
    delta_kernel<kRows, false><<<grid, 32, 0, queue.stream>>>(task);
  }
}

}  // namespace

void delta_rule(const DeltaTask& task, const Queue& queue) {
  if (task.state.n_tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(task.n_heads * ((task.d_v + 31) / 32)),
                  static_cast<unsigned>(task.state.n_walkers()));
  switch (task.d_k) {
    case 16:
      return start<16>(task, grid, queue);
    case 64:
      return start<64>(task, grid, queue);
    case 128:
      return start<128>(task, grid, queue);
    default:
      return delta_any_kernel<<<grid, 32, 0, queue.stream>>>(task);
  }
}

}  // namespace assay::backend::cuda
