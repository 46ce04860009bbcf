// delta_rule on the device (ops/state/delta_rule.h): 32 columns of one head's S, a lane one column.
//
//              lane 0   1   2  ..  31
//   row 0        S      S   S       S     <- k[0], q[0], decay of a token, in shared memory
//   row 1        S      S   S       S     <- k[1], q[1]
//    ..          |      |   |       |
//   row d_k - 1  S      S   S       S        S stays in registers from the first token to the last
//                v      v   v       v
//                d[j] = strength (v[j] - sum), y[j]
//
// One token: down the rows twice, for d and for y. A way through many is bound by how fast one chain of sums follows
// the other, so three warps share it. Two have the whole S, so that either has registers left to read ahead:
//
//   step       0          1                        2
//   keys       d0         corrects by d0, d1       corrects by d1, d2       d goes to the queries in shared memory
//   queries               corrects by d0, y0       corrects by d1, y1
//   tokens     token 2    token 3                  token 4                  on their way there, two steps ahead
//
//   block x: heads by 32 columns of d_v; block y: sequences of the batch
#include "backend/cuda/rows/floats.cuh"
#include "backend/cuda/rows/state_ops.h"
#include "backend/cuda/rows/state_walk.cuh"
#include "num/lanes.h"

namespace assay::backend::cuda {
namespace {

// Whose columns a block of threads has, and where a token's parts for them begin.
struct DeltaHead {
  __device__ DeltaHead(const DeltaTask& task) {
    const int n_blocks = (task.d_v + 31) / 32;
    head = static_cast<int>(blockIdx.x) / n_blocks;
    key_head = task.tiled ? head % task.n_key_heads : head / (task.n_heads / task.n_key_heads);
    column = static_cast<int>(blockIdx.x) % n_blocks * 32 + static_cast<int>(threadIdx.x % 32);
  }
  __device__ int64_t key(const DeltaTask& task, int64_t t) const {
    return (t * task.n_key_heads + key_head) * task.d_k;
  }
  __device__ int64_t value(const DeltaTask& task, int64_t t) const { return of_head(task, t) * task.d_v + column; }
  __device__ int64_t decay(const DeltaTask& task, int64_t t) const {
    return of_head(task, t) * (task.decay_by_row ? task.d_k : 1);
  }
  __device__ int64_t of_head(const DeltaTask& task, int64_t t) const { return t * task.n_heads + head; }
  __device__ int64_t state(const DeltaTask& task) const { return int64_t{head} * task.d_k * task.d_v + column; }
  int head, key_head, column;
};

// d_k of any size: S where it lies at the end, no lane sees another's.
__global__ void __launch_bounds__(32) delta_any_kernel(DeltaTask task) {
  const StateWalk walk(task.state, static_cast<int>(blockIdx.y));
  if (!walk.has_tokens()) return;
  const DeltaHead at(task);
  const bool is_column = at.column < task.d_v;
  float* s = walk.to() + at.state(task);
  const float* from = walk.from();
  for (int i = 0; is_column && i < task.d_k; ++i)
    s[int64_t{i} * task.d_v] = from == nullptr ? 0.0f : from[at.state(task) + int64_t{i} * task.d_v];
  walk.run([&](const StatePiece& piece) {
    for (int t = piece.begin; is_column && t < piece.begin + piece.n; ++t) {
      const float *q = task.q + at.key(task, t), *k = task.k + at.key(task, t), *decay = task.decay + at.decay(task, t);
      float d = 0.0f, o = 0.0f;
      for (int i = 0; i < task.d_k; ++i) {
        const float kept = s[int64_t{i} * task.d_v] * decay[task.decay_by_row ? i : 0];
        s[int64_t{i} * task.d_v] = kept;
        d = num::fma(kept, k[i], d);
      }
      d = task.strength[at.of_head(task, t)] * (task.v[at.value(task, t)] - d);
      for (int i = 0; i < task.d_k; ++i) {
        const float now = num::fma(k[i], d, s[int64_t{i} * task.d_v]);
        s[int64_t{i} * task.d_v] = now;
        o = num::fma(now, q[i], o);
      }
      task.y[at.value(task, t)] = o;
    }
    if (piece.slot == 0 || !is_column) return;
    float* to = walk.checkpoint(piece.slot) + at.state(task);
    for (int i = 0; i < task.d_k; ++i) to[int64_t{i} * task.d_v] = s[int64_t{i} * task.d_v];
  });
}

template <int kRows>
constexpr int rows_of_a_lane() {
  return kRows < 32 ? 1 : kRows / 32;
}

// Calls visit(row) for those of the rows that this lane brings to all.
template <int kRows, class Visit>
__device__ void for_own_rows(const Visit& visit) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < rows_of_a_lane<kRows>(); ++i) {
    if (i * 32 + lane < kRows) visit(i * 32 + lane);
  }
}

// A lane's column of S. The sums go down the rows, four at a time.
template <int kRows, bool kByRow>
struct DeltaColumn {
  float s[kRows];

  __device__ void read(const float* from, const DeltaTask& task, bool is_column) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) s[i] = from != nullptr && is_column ? from[int64_t{i} * task.d_v] : 0.0f;
  }
  __device__ void write(float* to, const DeltaTask& task, bool is_column) const {
    int64_t step = task.d_v;
    asm volatile("" : "+l"(step));  // the compiler would keep all places in registers from one checkpoint to the next
#pragma unroll
    for (int i = 0; i < kRows; ++i, to += step) {
      if (is_column) *to = s[i];
    }
  }
  // e: a number for each row, or one
  __device__ static void read_decay(const float* e, int i, float (&four)[4]) {
    if constexpr (kByRow) {
      read_4(e + i, four);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) four[j] = *e;
    }
  }

  __device__ void fade(const float* e) {
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      float decay[4];
      read_decay(e, i, decay);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i + j] = s[i + j] * decay[j];
    }
  }
  // ... and the sum with k after it
  __device__ float fade_sum(const float* e, const float* k) {
    float sum = 0.0f;
    in_groups(k, k, e, [&](int i, float key, float, float decay) {
      s[i] = s[i] * decay;
      sum = num::fma(s[i], key, sum);
    });
    return sum;
  }
  __device__ void correct(const float* k, float d) {
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      float key[4];
      read_4(k + i, key);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i + j] = num::fma(key[j], d, s[i + j]);
    }
  }
  // ... and the sum with q after it
  __device__ float correct_sum(const float* k, float d, const float* q) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      float key[4], query[4];
      read_4(k + i, key), read_4(q + i, query);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i + j] = num::fma(key[j], d, s[i + j]), sum = num::fma(s[i + j], query[j], sum);
    }
    return sum;
  }
  // correct, fade_sum; correct_sum, fade
  __device__ float correct_fade_sum(const float* k, float d, const float* e, const float* k_next) {
    float sum = 0.0f;
    in_groups(k, k_next, e, [&](int i, float key, float next, float decay) {
      s[i] = num::fma(key, d, s[i]) * decay;
      sum = num::fma(s[i], next, sum);
    });
    return sum;
  }
  __device__ float correct_sum_fade(const float* k, float d, const float* q, const float* e) {
    float sum = 0.0f;
    in_groups(k, q, e, [&](int i, float key, float query, float decay) {
      const float now = num::fma(key, d, s[i]);
      sum = num::fma(now, query, sum);
      s[i] = now * decay;
    });
    return sum;
  }

  // Calls work(row, a[row], b[row], e[row]) for all rows in order, eight at a time. What these read of shared memory is
  // on its way while the two groups before are worked on: the compiler by itself begins to read too late, and would
  // wait for most of it.
  template <class Work>
  __device__ static void in_groups(const float* a, const float* b, const float* e, const Work& work) {
    constexpr int kGroup = 8, kAhead = kByRow ? 2 : 3, kGroups = kRows / kGroup;
    float of_a[kAhead][kGroup], of_b[kAhead][kGroup], of_e[kAhead][kByRow ? kGroup : 1];
    const float one = kByRow ? 0.0f : *e;
    const auto read = [&](int group) {
      if (group >= kGroups) return;
      const int place = group % kAhead;
#pragma unroll
      for (int i = 0; i < kGroup; i += 4) {
        read_4(a + group * kGroup + i, of_a[place] + i), read_4(b + group * kGroup + i, of_b[place] + i);
        if (kByRow) read_4(e + group * kGroup + i, of_e[place] + i);
      }
    };
#pragma unroll
    for (int group = 0; group < kAhead - 1; ++group) read(group);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      __syncwarp();
      read(group + kAhead - 1);
      const int place = group % kAhead;
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
        work(group * kGroup + i, of_a[place][i], of_b[place][i], kByRow ? of_e[place][i] : one);
    }
  }
};

// What a token gives, of kPlaces tokens.
template <int kRows, bool kByRow, int kPlaces>
struct DeltaTokens {
  alignas(16) float k[kPlaces][kRows], q[kPlaces][kRows], e[kPlaces][kByRow ? kRows : 4];
  float v[kPlaces][32], d[kPlaces][32], strength[kPlaces];
};

// A token at a time, by one warp: where a sequence has one, as in decoding, or many sequences keep the device busy.
template <int kRows, bool kByRow>
__global__ void __launch_bounds__(32) delta_kernel(DeltaTask task) {
  __shared__ DeltaTokens<kRows, kByRow, 1> token;
  const StateWalk walk(task.state, static_cast<int>(blockIdx.y));
  if (!walk.has_tokens()) return;
  const DeltaHead at(task);
  const bool is_column = at.column < task.d_v;
  const float* from = walk.from();
  DeltaColumn<kRows, kByRow> column;
  column.read(from == nullptr ? nullptr : from + at.state(task), task, is_column);
  walk.run([&](const StatePiece& piece) {
    for (int64_t t = piece.begin; t < piece.begin + piece.n; ++t) {
      for_own_rows<kRows>([&](int row) {
        token.k[0][row] = task.k[at.key(task, t) + row];
        token.q[0][row] = task.q[at.key(task, t) + row];
        if (kByRow) token.e[0][row] = task.decay[at.decay(task, t) + row];
      });
      if (!kByRow) token.e[0][0] = task.decay[at.decay(task, t)];
      const float strength = task.strength[at.of_head(task, t)];
      const float v = is_column ? task.v[at.value(task, t)] : 0.0f;
      __syncwarp();
      const float d = strength * (v - column.fade_sum(token.e[0], token.k[0]));
      __syncwarp();  // so that k is read again: there are no registers to keep it in
      const float o = column.correct_sum(token.k[0], d, token.q[0]);
      if (is_column) task.y[at.value(task, t)] = o;
      __syncwarp();  // all have read
    }
    if (piece.slot > 0) column.write(walk.checkpoint(piece.slot) + at.state(task), task, is_column);
  });
  column.write(walk.to() + at.state(task), task, is_column);
}

// Three warps share a long way.
constexpr int kPlaces = 4;
template <int kRows, bool kByRow>
using DeltaRing = DeltaTokens<kRows, kByRow, kPlaces>;

__device__ void meet() { asm volatile("bar.sync 1, 96;" : : : "memory"); }
__device__ void start_copy(float* to, const float* from) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"(shared), "l"(from) : "memory");
}
template <int kLeft>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kLeft) : "memory");
}

// Step u has the tokens from u on come: each is there a step before it is worked on.
template <int kRows, bool kByRow>
__device__ void bring_tokens(const DeltaTask& task, const DeltaHead& at, const StatePiece& piece,
                             DeltaRing<kRows, kByRow>& ring) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto bring = [&](int u) {
    const int64_t t = piece.begin + u;
    const int place = u % kPlaces;
    for_own_rows<kRows>([&](int row) {
      start_copy(&ring.k[place][row], task.k + at.key(task, t) + row);
      start_copy(&ring.q[place][row], task.q + at.key(task, t) + row);
      if (kByRow) start_copy(&ring.e[place][row], task.decay + at.decay(task, t) + row);
    });
    if (at.column < task.d_v) start_copy(&ring.v[place][lane], task.v + at.value(task, t));
    if (lane == 0) start_copy(&ring.strength[place], task.strength + at.of_head(task, t));
    if (!kByRow && lane == 1) start_copy(ring.e[place], task.decay + at.decay(task, t));
  };
  const auto end_group = [] { asm volatile("cp.async.commit_group;" : : : "memory"); };
  bring(0);
  end_group();
  if (piece.n > 1) bring(1);
  end_group();
  wait_for_copies<1>();
  meet();
  for (int u = 0; u < piece.n; ++u) {
    if (u + 2 < piece.n) bring(u + 2);
    end_group();
    wait_for_copies<1>();
    meet();
  }
  meet();
}

// Step u makes d of token u.
template <int kRows, bool kByRow>
__device__ void correct_by_keys(const StatePiece& piece, DeltaRing<kRows, kByRow>& ring,
                                DeltaColumn<kRows, kByRow>& column) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  meet();
  float sum = column.fade_sum(ring.e[0], ring.k[0]);
  float d = ring.strength[0] * (ring.v[0][lane] - sum);
  ring.d[0][lane] = d;
  meet();
#pragma unroll 1
  for (int u = 1; u < piece.n; ++u) {
    const int here = u % kPlaces, before = (u - 1) % kPlaces;
    const float strength = ring.strength[here], v = ring.v[here][lane];
    sum = column.correct_fade_sum(ring.k[before], d, ring.e[here], ring.k[here]);
    d = strength * (v - sum);
    ring.d[here][lane] = d;
    meet();
  }
  column.correct(ring.k[(piece.n - 1) % kPlaces], d);
  meet();
}

// Step u makes y of token u - 1.
template <int kRows, bool kByRow>
__device__ void sum_by_queries(const DeltaTask& task, const DeltaHead& at, const StatePiece& piece,
                               DeltaRing<kRows, kByRow>& ring, DeltaColumn<kRows, kByRow>& column) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float* y = task.y + at.value(task, piece.begin);
  const int64_t step = int64_t{task.n_heads} * task.d_v;
  meet();
  column.fade(ring.e[0]);
  meet();
#pragma unroll 1
  for (int u = 1; u < piece.n; ++u, y += step) {
    const int here = u % kPlaces, before = (u - 1) % kPlaces;
    const float o = column.correct_sum_fade(ring.k[before], ring.d[before][lane], ring.q[before], ring.e[here]);
    if (at.column < task.d_v) *y = o;
    meet();
  }
  const int last = (piece.n - 1) % kPlaces;
  const float o = column.correct_sum(ring.k[last], ring.d[last][lane], ring.q[last]);
  if (at.column < task.d_v) *y = o;
  meet();
}

template <int kRows, bool kByRow>
__global__ void __launch_bounds__(96) delta_walk_kernel(DeltaTask task) {
  __shared__ DeltaRing<kRows, kByRow> ring;
  const StateWalk walk(task.state, static_cast<int>(blockIdx.y));
  if (!walk.has_tokens()) return;
  const DeltaHead at(task);
  const bool is_column = at.column < task.d_v;
  const float* from = walk.from();
  if (from != nullptr) from += at.state(task);
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (warp == 2) {
    if (!is_column) {
      for (int place = 0; place < kPlaces; ++place) ring.v[place][threadIdx.x % 32] = 0.0f;
    }
    return walk.run([&](const StatePiece& piece) { bring_tokens(task, at, piece, ring); });
  }
  DeltaColumn<kRows, kByRow> column;
  column.read(from, task, is_column);
  if (warp == 1) return walk.run([&](const StatePiece& piece) { sum_by_queries(task, at, piece, ring, column); });
  walk.run([&](const StatePiece& piece) {
    correct_by_keys(piece, ring, column);
    if (piece.slot > 0) column.write(walk.checkpoint(piece.slot) + at.state(task), task, is_column);
  });
  column.write(walk.to() + at.state(task), task, is_column);
}

template <int kRows, bool kByRow>
void start(OpKernel by, const DeltaTask& task, const dim3& grid, const Queue& queue) {
  if (by == OpKernel::delta_walk) {
    delta_walk_kernel<kRows, kByRow><<<grid, 96, 0, queue.stream>>>(task);
  } else {
    delta_kernel<kRows, kByRow><<<grid, 32, 0, queue.stream>>>(task);
  }
}

template <int kRows>
void start(OpKernel by, const DeltaTask& task, const dim3& grid, const Queue& queue) {
  task.decay_by_row ? start<kRows, true>(by, task, grid, queue) : start<kRows, false>(by, task, grid, queue);
}

}  // namespace

void delta_rule(OpKernel by, const DeltaTask& task, const Queue& queue) {
  if (task.state.n_tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(task.n_heads * ((task.d_v + 31) / 32)),
                  static_cast<unsigned>(task.state.n_walkers()));
  if (by == OpKernel::delta_in_memory) return delta_any_kernel<<<grid, 32, 0, queue.stream>>>(task);
  if (task.d_k == 16) return start<16>(by, task, grid, queue);
  if (task.d_k == 64) return start<64>(by, task, grid, queue);
  start<128>(by, task, grid, queue);
}

}  // namespace assay::backend::cuda
