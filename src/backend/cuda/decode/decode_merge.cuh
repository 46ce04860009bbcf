// What the kernels of decode_attention.h share: their task, and the merge of segments by the block of threads that
// comes last.
#pragma once

#include "backend/cuda/attention/decode_attention.h"
#include "backend/cuda/rows/gather.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/lanes.h"
#include "num/math.h"

namespace assay::backend::cuda {

inline constexpr int kAttentionThreads = 256, kAttentionWarps = kAttentionThreads / 32;
inline constexpr int kMergedAhead = 64;  // segments merged at a time, at most

struct DecodeAttentionTask {
  HeadsTask heads;
  float* y = nullptr;
  int64_t window = 0;
  int32_t n_segments = 0, tile_keys = 0;
  float scale = 0;
  float* partials = nullptr;
  uint32_t* arrived = nullptr;
  GatherTask send;
  bool lets_early = true;
};

// Heads of 64 or 128 elements over a cache in half precision (decode_attention_f16.cu), by fours or each alone.
void decode_attention_f16(const DecodeAttentionTask& task, bool four, const Queue& queue);

template <int kHeads>
struct MergeShared {
  float a[kHeads][kMergedAhead], b[kHeads][kMergedAhead];
  float l[kHeads];
  uint32_t last;
};

__device__ inline float* partials_of(const DecodeAttentionTask& task, int head, int segment, int head_dim) {
  return task.partials + (head * task.n_segments + segment) * (head_dim + 2);
}

// The factors of the merge of segments 1 .. n - 1 into segment 0, by the warp of a head; m: their maxima, `stride`
// floats apart. All in shared memory. The maximum of all is put in the place of the first.
__device__ inline void merge_factors(float* m, int stride, int n, float* a, float* b) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float above = m[0];
#pragma unroll 1
  for (int i = 1; i < n; i += 32) {
    const bool inside = i + lane < n;
    const float own = inside ? m[(i + lane) * stride] : __uint_as_float(0xFF800000u);
    float top = own;
#pragma unroll 1
    for (int width = 1; width < 32; width *= 2) {
      const float other = __shfl_up_sync(kWholeWarp, top, width);
      if (lane >= width) top = top > other ? top : other;
    }
    top = top > above ? top : above;
    float before = __shfl_up_sync(kWholeWarp, top, 1);
    if (lane == 0) before = above;
    if (inside) a[i + lane] = num::exp(before - top), b[i + lane] = num::exp(own - top);
    above = __shfl_sync(kWholeWarp, top, 31);
  }
  __syncwarp();
  if (lane == 0) m[0] = above;
}

// All segments of the block's heads, ascending, in shared memory: `room` of so many floats takes at least two segments
// of all heads. Where it does not take all of them, what is merged is the first segment of the next go.
template <int kHeads>
__device__ void merge_segments(const DecodeAttentionTask& task, int head_dim, int first_head, int n, float* room,
                               int n_room, MergeShared<kHeads>& s) {
  constexpr int kOfHead = kAttentionThreads / kHeads,
                kAsked = 16;  // threads; pairs of floats that each asks for at once
  const int t = static_cast<int>(threadIdx.x), warp = t / 32, width = head_dim + 2,
            n_at_once = min(n_room / (kHeads * width), kMergedAhead);
  const int head_floats = n_at_once * width;
  for (int done = 0; done < n;) {
    const int first = done == 0 ? 0 : 1, n_now = min(n - done, n_at_once - first), n_pairs = n_now * width / 2;
    const auto* from = reinterpret_cast<const float2*>(partials_of(task, first_head + t / kOfHead, done, head_dim));
    auto* to = reinterpret_cast<float2*>(room + t / kOfHead * head_floats + first * width);
#pragma unroll 1
    for (int i = t % kOfHead; i < n_pairs; i += kAsked * kOfHead) {
      float2 x[kAsked];
#pragma unroll
      for (int c = 0; c < kAsked; ++c) {
        if (i + c * kOfHead < n_pairs) x[c] = __ldcg(from + i + c * kOfHead);
      }
#pragma unroll
      for (int c = 0; c < kAsked; ++c) {
        if (i + c * kOfHead < n_pairs) to[i + c * kOfHead] = x[c];
      }
    }
    __syncthreads();
    done += n_now;
    const int n_rows = n_now + first;
    if (warp < kHeads) merge_factors(room + warp * head_floats, width, n_rows, s.a[warp], s.b[warp]);
    __syncthreads();
#pragma unroll 1
    for (int item = t; item < kHeads * head_dim; item += kAttentionThreads) {
      const int g = item / head_dim, j = item % head_dim;
      float* rows = room + g * head_floats;
      float l = rows[1], o = rows[2 + j];
#pragma unroll 4
      for (int k = 1; k < n_rows; ++k) {
        const float a = s.a[g][k], b = s.b[g][k];
        l = num::fma(l, a, rows[k * width + 1] * b);
        o = num::fma(o, a, rows[k * width + 2 + j] * b);
      }
      if (done < n) {
        rows[2 + j] = o;
        if (j == 0) s.l[g] = l;
        continue;
      }
      const float y = o / l;
      task.y[first_head * head_dim + item] = y;
      send_column(task.send, first_head * head_dim + item, y);
    }
    __syncthreads();
    if (done < n && t < kHeads) room[t * head_floats + 1] = s.l[t];
  }
  tell_shards(task.send, gridDim.x);
}

// After the block has written what it has of its segment: the last of n blocks merges all.
template <int kHeads>
__device__ void merge_if_last(const DecodeAttentionTask& task, int head_dim, int first_head, int n, float* room,
                              int n_room, MergeShared<kHeads>& s) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) s.last = atomicAdd(task.arrived + blockIdx.x, 1u) == static_cast<uint32_t>(n) - 1 ? 1u : 0u;
  __syncthreads();
  if (s.last == 0) return;
  if (threadIdx.x == 0) task.arrived[blockIdx.x] = 0;
  __threadfence();
  merge_segments<kHeads>(task, head_dim, first_head, n, room, n_room, s);
}

}  // namespace assay::backend::cuda
