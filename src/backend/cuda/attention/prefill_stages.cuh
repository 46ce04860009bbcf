// What attention_prefill.cu's blocks of threads do with a stage of keys or of values in shared memory: filling it from
// a cache of f16, and the chains of a thread's 8 queries with it.
//
//   cache  --- load_keys, load_values: 16 bytes a register --- store_keys, store_values: floats --->  one of two stages
//   keys    [element][group][lane / 2][4 keys]  x  queries        --- add_scores --------->  score [keys][8 queries]
//   values  [key][column]                       x  probabilities  --- add_all, add_seen -->  sum [8 queries][columns]
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/attention/attention_parts.cuh"
#include "backend/cuda/attention/cache_pages.cuh"
#include "num/math.h"

namespace assay::backend::cuda::prefill {

inline constexpr int kThreads = 128, kQueries = 64;

// How heads of so many elements are cut into stages.
template <int head_dim>
struct Cut {
  static constexpr int kHeadDim = head_dim;
  static constexpr int kStageFloats = kHeadDim == 64 ? 4096 : 2048;
  static constexpr int kElements = kStageFloats / kSegment;   // of all keys of a segment, in a stage
  static constexpr int kStageKeys = kStageFloats / kHeadDim;  // whose values are a stage
  static constexpr int kLoads = kStageFloats / (8 * kThreads);
  static constexpr int kColumns = kHeadDim / kGroupKeys;  // fours of columns of a thread
};

// The groups of keys of a segment that any token of a block sees.
struct Groups {
  int begin = 0, end = 0, n = 0;  // positions, the first a group's first; groups
};

__device__ inline void widen(uint4 halves, float (&x)[8]) {
  const uint32_t w[4] = {halves.x, halves.y, halves.z, halves.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned half = i % 2 == 0 ? w[i / 2] & 0xFFFFu : w[i / 2] >> 16;
    x[i] = __half2float(__ushort_as_half(static_cast<unsigned short>(half)));
  }
}

// The two stages, and what a thread has read for the next one.
template <int kHeadDim>
class Stages {
 public:
  using C = Cut<kHeadDim>;
  static constexpr int kElements = C::kElements, kStageKeys = C::kStageKeys, kLoads = C::kLoads;
  __device__ Stages(const CacheView& cache, int sequence, int64_t kv_head, float* memory)
      : cache_(cache), table_(table_of(cache, sequence)), kv_head_(static_cast<int>(kv_head)), memory_(memory),
        warp_(static_cast<int>(threadIdx.x) / 32), odd_(static_cast<int>(threadIdx.x) % 2),
        l_(static_cast<int>(threadIdx.x) % 32 / 2) {}

  // Stage i of the segment's keys: kElements elements of all groups, a warp a group. Positions that nobody sees are
  // read as others.
  __device__ void load_keys(const Groups& groups, int i) {
    if (warp_ >= groups.n) return;
    const int tile = min(groups.begin / kKeyTile + 2 * warp_ + odd_, (groups.end - 1) / kKeyTile);
    const auto* pieces =
        reinterpret_cast<const uint4*>(key_tile(cache_, table_, kv_head_, tile)) + i * (kElements / 8) * kKeyTile + l_;
#pragma unroll
    for (int n = 0; n < kLoads; ++n) next_[n] = pieces[n / 2 * kKeyTile + n % 2 * 16];
  }
  // [element][group][lane / 2][4 keys]; this thread's are two of the four.
  __device__ void store_keys(const Groups& groups, float* stage) const {
    if (warp_ >= groups.n) return;
#pragma unroll
    for (int piece = 0; piece < kElements / 8; ++piece) {
      float low[8], high[8];
      widen(next_[2 * piece], low);
      widen(next_[2 * piece + 1], high);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        *reinterpret_cast<float2*>(stage + (8 * piece + e) * kSegment + warp_ * kGroupKeys + 4 * l_ + 2 * odd_) = {
            low[e], high[e]};
      }
    }
  }
  // The values of kStageKeys positions, which are of one page and lie side by side; those that nobody sees are not
  // read.
  __device__ void load_values(const Groups& groups, int first) {
    const int element = 8 * static_cast<int>(threadIdx.x), row = first + element / kHeadDim;
    static_assert(kCachePage % kStageKeys == 0 && kCachePage % kGroupKeys == 0);
    const auto* from = reinterpret_cast<const uint4*>(value_row(cache_, table_, kv_head_, first)) + threadIdx.x;
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      if (row + n * (8 * kThreads / kHeadDim) < groups.end) next_[n] = from[n * kThreads];
    }
  }
  __device__ void store_values(float* stage) const {
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      float x[8];
      widen(next_[n], x);
      auto* to = reinterpret_cast<float4*>(stage + 8 * (n * kThreads + static_cast<int>(threadIdx.x)));
      to[0] = {x[0], x[1], x[2], x[3]};
      to[1] = {x[4], x[5], x[6], x[7]};
    }
  }
  __device__ float* next_stage() {
    side_ ^= 1;
    return memory_ + side_ * C::kStageFloats;
  }

 private:
  const CacheView& cache_;
  const PageTable table_;
  const int kv_head_;
  float* const memory_;
  const int warp_, odd_, l_;
  int side_ = 0;
  uint4 next_[kLoads];
};

// Elements of a stage, into the chains. stage and q: where the lane's keys and queries begin.
template <class C, int kN>
__device__ void add_scores(const float* stage, const float* q, float (&score)[4 * kN][8]) {
#pragma unroll 4
  for (int e = 0; e < C::kElements; ++e) {
    float x[8];
    read_4(q + e * kQueries, x);
    read_4(q + e * kQueries + 4, x + 4);
#pragma unroll
    for (int group = 0; group < kN; ++group) {
      float key[4];
      read_4(stage + e * kSegment + group * kGroupKeys, key);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
#pragma unroll
        for (int i = 0; i < 8; ++i) score[4 * group + c][i] = num::fma(x[i], key[c], score[4 * group + c][i]);
      }
    }
  }
}

__device__ inline float least_or_nan(float a, float b) {
  float x;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}
// Of numbers that are not above 0.
__device__ inline void exponentials(float (&x)[2][8]) {
  float least = 0.0f;
#pragma unroll
  for (int i = 0; i < 16; ++i) least = least_or_nan(least, x[i / 8][i % 8]);
  if (least >= -num::kExpNearMax) {
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i / 8][i % 8] = num::exp_near(x[i / 8][i % 8]);
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i / 8][i % 8] = num::exp(x[i / 8][i % 8]);
  }
}

// What a key adds: its probabilities, its value's columns.
template <class C>
struct Key {
  float p[8], v[4 * C::kColumns];
  __device__ Key(const float* probabilities, const float* value) {
    read_queries(probabilities, p);
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) read_4(value + c * kGroupKeys, v + 4 * c);
  }
  __device__ void add_to(int i, float (&sum)[8][4 * C::kColumns]) const {
#pragma unroll
    for (int c = 0; c < 4 * C::kColumns; ++c) sum[i][c] = num::fma(p[i], v[c], sum[i][c]);
  }
};
template <class C>
__device__ void add_all(const float* p, const float* values, float (&sum)[8][4 * C::kColumns]) {
  constexpr int kUnrolled = 512 / (32 * C::kColumns);  // keys
#pragma unroll 1
  for (int begin = 0; begin < C::kStageKeys; begin += kUnrolled) {
#pragma unroll
    for (int key = 0; key < kUnrolled; ++key) {
      const Key<C> now(p + key * 4, values + key * C::kHeadDim);
#pragma unroll
      for (int i = 0; i < 8; ++i) now.add_to(i, sum);
    }
    p += kUnrolled * 4, values += kUnrolled * C::kHeadDim;
  }
}
// A token's chain has its own keys only.
template <class C>
__device__ void add_seen(const Seen& seen_by, int first, int end, const float* p, const float* values,
                         float (&sum)[8][4 * C::kColumns]) {
#pragma unroll 1
  for (int key = first; key < end; ++key) {
    const uint32_t bits = seen_by.of(key);
    const Key<C> now(p + (key - first) * 4, values + (key - first) * C::kHeadDim);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((bits >> i & 1u) != 0) now.add_to(i, sum);
    }
  }
}

}  // namespace assay::backend::cuda::prefill
