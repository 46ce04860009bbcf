// Which experts a token goes to (contract: ops/linear/route.h), by one warp.
#pragma once

#include "backend/cuda/rows/plain_rows.h"
#include "backend/cuda/runtime/warp.cuh"
#include "num/activations.h"
#include "num/lanes.h"

namespace assay::backend::cuda {

inline size_t route_shared_bytes(const RouteTask& task) {
  return static_cast<size_t>(2 * task.n_experts + task.n_groups + 2 * task.n_used) * sizeof(float);
}

// Whether entry a comes before entry b: the larger, the lower index among equals.
__device__ inline bool is_before(float x_a, int a, float x_b, int b) { return x_a != x_b ? x_a > x_b : a < b; }

// Of a row of at most 32 x kOwnMax elements a lane has its own, lane, lane + 32, ..., in registers.
inline constexpr int kOwnMax = 4;

// The order of is_before as that of whole numbers: larger ones first. No entry is a NaN; no key is 0.
__device__ inline uint32_t high_key_of(float x) {
  const uint32_t bits = x == 0.0f ? 0u : __float_as_uint(x);  // both zeros are equal
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline uint64_t key_of(float x, int i) {
  return uint64_t{high_key_of(x)} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(i));
}

// Of the lanes' own; where one is a NaN some lanes may have it, and a softmax is NaN either way.
__device__ inline float largest_of_warp(float m) {
#pragma unroll
  for (int width = 16; width >= 1; width /= 2) {
    const float other = __shfl_xor_sync(kWholeWarp, m, width);
    m = other > m ? other : m;
  }
  return m;
}

// By a warp, y may be x.
__device__ inline void softmax_of_short(const float* x, int n, float* y) {
  const int lane = threadIdx.x % 32;
  float own[kOwnMax], m = x[0];
#pragma unroll
  for (int s = 0; s < kOwnMax; ++s) {
    own[s] = lane + 32 * s < n ? x[lane + 32 * s] : __uint_as_float(0xFF800000u);
    m = own[s] > m ? own[s] : m;
  }
  m = largest_of_warp(m);
  float sum = 0.0f;
#pragma unroll
  for (int s = 0; s < kOwnMax; ++s) {
    own[s] = lane + 32 * s < n ? num::exp(own[s] - m) : 0.0f;  // a zero changes no sum of these
    sum = sum + own[s];
  }
  const float total = __shfl_sync(kWholeWarp, fold_lanes(sum), 0);
#pragma unroll
  for (int s = 0; s < kOwnMax; ++s) {
    if (lane + 32 * s < n) y[lane + 32 * s] = own[s] / total;
  }
  __syncwarp();
}
__device__ inline void softmax_of_any(const float* x, int n, float* y) {
  const int lane = threadIdx.x % 32;
  float m = x[0];
  for (int i = lane; i < n; i += 32) m = x[i] > m ? x[i] : m;
  m = largest_of_warp(m);
  __syncwarp();
  float sum = 0.0f;
  for (int i = lane; i < n; i += 32) {
    const float e = num::exp(x[i] - m);
    y[i] = e;
    sum = sum + e;
  }
  const float total = __shfl_sync(kWholeWarp, fold_lanes(sum), 0);
  for (int i = lane; i < n; i += 32) y[i] = y[i] / total;
  __syncwarp();
}

// The largest of this lane's entries that is less than another; 0: none.
__device__ inline uint64_t own_below(const float* x, int n, uint64_t other) {
  uint64_t best = 0;
  for (int i = threadIdx.x % 32; i < n; i += 32) {
    const uint64_t key = key_of(x[i], i);
    best = key < other && key > best ? key : best;
  }
  return best;
}
__device__ inline uint64_t warp_max_64(uint64_t x) {
  const uint32_t high = warp_max(static_cast<uint32_t>(x >> 32));
  return uint64_t{high} << 32 | warp_max(static_cast<uint32_t>(x >> 32) == high ? static_cast<uint32_t>(x) : 0u);
}
// The first k of n by is_before; all lanes call.
__device__ inline void choose_of_short(const float* x, int n, int k, int* chosen) {
  const int lane = threadIdx.x % 32;
  uint32_t key[kOwnMax], best = 0;  // 0: taken, or not there
#pragma unroll
  for (int s = 0; s < kOwnMax; ++s) {
    key[s] = lane + 32 * s < n ? high_key_of(x[lane + 32 * s]) : 0u;
    best = max(best, key[s]);
  }
#pragma unroll 1
  for (int rank = 0; rank < k; ++rank) {
    const uint32_t largest = warp_max(best);
    int step = kOwnMax;  // of this lane's first entry that is as large
#pragma unroll
    for (int s = kOwnMax - 1; s >= 0; --s) step = key[s] == largest ? s : step;
    const unsigned first = __reduce_min_sync(kWholeWarp, static_cast<unsigned>(lane + 32 * step));
    if (first == static_cast<unsigned>(lane + 32 * step)) {
      chosen[rank] = static_cast<int>(first);
      best = 0;
#pragma unroll
      for (int s = 0; s < kOwnMax; ++s) {
        if (s == step) key[s] = 0;
        best = max(best, key[s]);
      }
    }
    __syncwarp();
  }
  __syncwarp();
}
__device__ inline void choose_of_any(const float* x, int n, int k, int* chosen) {
  uint64_t own = own_below(x, n, ~uint64_t{0});
  for (int rank = 0; rank < k; ++rank) {
    const uint64_t best = warp_max_64(own);
    const auto i = static_cast<int>(0xFFFFFFFFu - static_cast<uint32_t>(best));
    if (static_cast<int>(threadIdx.x % 32) == i % 32) {
      chosen[rank] = i;
      own = own_below(x, n, best);
    }
  }
  __syncwarp();
}

__device__ inline void keep_groups(const RouteTask& task, float* choice, float* group) {
  const int lane = threadIdx.x % 32, size = task.n_experts / task.n_groups;
  for (int g = lane; g < task.n_groups; g += 32) {
    const float* x = choice + g * size;
    int best = 0;
    for (int i = 1; i < size; ++i) best = is_before(x[i], i, x[best], best) ? i : best;
    float score = x[best];
    if (!task.group_by_best && size > 1) {
      int second = best == 0 ? 1 : 0;
      for (int i = 0; i < size; ++i) second = i != best && is_before(x[i], i, x[second], second) ? i : second;
      score += x[second];
    }
    group[g] = score;
  }
  __syncwarp();
  for (int i = lane; i < task.n_experts; i += 32) {
    const int g = i / size;
    int n_before = 0;
    for (int h = 0; h < task.n_groups; ++h) n_before += is_before(group[h], h, group[g], g);
    if (n_before >= task.n_groups_used) choice[i] = __uint_as_float(0xFF800000u);
  }
  __syncwarp();
}

// Weights of Gating::sparse_mixer, from the logits. By a warp.
__device__ inline void share_among_near(const RouteTask& task, const float* logits, const int* chosen, float* weights) {
  const int lane = threadIdx.x % 32;
  for (int rank = 0; rank < task.n_used; ++rank) {
    const float m = logits[chosen[rank]];
    float sum = 0.0f;
    for (int i = lane; i < task.n_experts; i += 32) {
      const float s = logits[i], larger = fabsf(s) > m ? fabsf(s) : m;
      bool is_out = (m - s) / larger > task.near;
      for (int before = 0; before < rank; ++before) is_out = is_out || chosen[before] == i;
      sum = sum + (is_out ? 0.0f : num::exp(s - m));
    }
    const float total = fold_lanes(sum);
    if (lane == 0) weights[rank] = num::exp(m - m) / total;
  }
  __syncwarp();
}

// One token's row; memory: route_shared_bytes(). kIsShort: of at most 32 x kOwnMax experts.
// gating: the task's, or that as a constant.
template <bool kIsShort, class Gating>
__device__ void route_by_warp(const RouteTask& task, Gating gating, const float* logits, float* y, float* memory) {
  float *scores = memory, *choice = memory + task.n_experts, *group = choice + task.n_experts;
  float* weights = group + task.n_groups;
  auto* chosen = reinterpret_cast<int*>(weights + task.n_used);
  const int lane = threadIdx.x % 32, n = task.n_experts, k = task.n_used;
  if (gating == ops::Gating::softmax) {
    for (int i = lane; i < n; i += 32) choice[i] = logits[i];
    __syncwarp();
    kIsShort ? softmax_of_short(choice, n, scores) : softmax_of_any(choice, n, scores);
  } else {
    for (int i = lane; i < n; i += 32) {
      const float x = logits[i];
      scores[i] = gating == ops::Gating::sigmoid         ? num::sigmoid(x)
                  : gating == ops::Gating::sqrt_softplus ? sqrtf(num::softplus(x))
                                                         : x;
    }
    __syncwarp();
  }
  bool poisoned = false;
#pragma unroll 4
  for (int i = lane; i < n; i += 32) {
    choice[i] = task.bias == nullptr ? scores[i] : scores[i] + task.bias[i];
    poisoned = poisoned || !(choice[i] == choice[i]);
  }
  if (__any_sync(kWholeWarp, poisoned)) {
    for (int i = lane; i < k; i += 32) y[i] = __uint_as_float(0x7FC00000u), y[k + i] = static_cast<float>(i);
    return;
  }
  __syncwarp();
  if (task.n_groups > 1) keep_groups(task, choice, group);
  kIsShort ? choose_of_short(choice, n, k, chosen) : choose_of_any(choice, n, k, chosen);
  for (int i = lane; i < k; i += 32) weights[i] = scores[chosen[i]];
  __syncwarp();
  if (gating == ops::Gating::softmax_of_chosen) softmax_of_any(weights, k, weights);
  if (gating == ops::Gating::sparse_mixer) share_among_near(task, scores, chosen, weights);
  float sum = 0.0f;
#pragma unroll 4
  for (int i = 0; i < k; ++i) sum = sum + weights[i];
  for (int i = lane; i < k; i += 32) {
    float weight = weights[i];
    if (task.normalise) weight = weight / (sum + task.least_sum);
    weight = weight * task.scale;
    if (task.expert_scales != nullptr) weight = weight * task.expert_scales[chosen[i]];
    y[i] = weight, y[k + i] = static_cast<float>(chosen[i]);
  }
}

}  // namespace assay::backend::cuda
