// See attention.h. A block of 256 threads takes one head of a tile of queries and a segment of 256 keys: thread t scores key t against all
// queries, then the threads take columns of the values. Every chain and fold is the contract's.
#include "backend/cuda/attention.h"

#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/warp.cuh"
#include "num/math.h"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

using ops::CacheType;
constexpr int kThreads = 256;
constexpr int kSegment = static_cast<int>(ops::kAttentionSegment);
static_assert(kSegment == kThreads);

template <CacheType type>
struct Piece;  // 16 bytes of a key as floats
template <>
struct Piece<CacheType::f32> {
  static constexpr int kElements = 4;
  __device__ static void widen(uint4 bytes, float, float (&out)[4]) {
    out[0] = __uint_as_float(bytes.x), out[1] = __uint_as_float(bytes.y), out[2] = __uint_as_float(bytes.z), out[3] = __uint_as_float(bytes.w);
  }
};
template <>
struct Piece<CacheType::f16> {
  static constexpr int kElements = 8;
  __device__ static void widen(uint4 bytes, float, float (&out)[8]) {
    const uint32_t w[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(w[i] & 0xFFFFu)));
      out[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(w[i] >> 16)));
    }
  }
};
template <>
struct Piece<CacheType::q8_0> {
  static constexpr int kElements = 16;
  __device__ static void widen(uint4 bytes, float scale, float (&out)[16]) {
    const uint32_t w[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 16; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>((w[i / 4] >> (8 * (i % 4))) & 255));
  }
};

template <CacheType type>
__device__ float value_at(const std::byte* row, int64_t head_dim, int64_t j) {
  if constexpr (type == CacheType::f32) return reinterpret_cast<const float*>(row)[j];
  if constexpr (type == CacheType::f16) return __half2float(reinterpret_cast<const __half*>(row)[j]);
  if constexpr (type == CacheType::q8_0) {
    const float scale = __half2float(reinterpret_cast<const __half*>(row + head_dim)[j / 32]);
    return scale * static_cast<float>(reinterpret_cast<const int8_t*>(row)[j]);
  }
}

// What a block of threads shares; the arrays of floats lie behind it.
template <int kQueries>
struct Shared {
  float maxima[8][kQueries];              // of the warps
  float m[kQueries], l[kQueries];         // of the segment
  float m_run[kQueries], l_run[kQueries]; // of the segments so far
  float a[kQueries], b[kQueries];         // factors of the merge
  int started[kQueries];
  int begin[kQueries], end[kQueries];     // keys of the segment that the query sees, counted from its first
};

// Scores of the thread's key with all queries, into p; nothing where no query sees it.
template <CacheType type, int kQueries>
__device__ void score_key(const CacheView& cache, const std::byte* head, int64_t position, const float* q, float scale, float (&score)[kQueries]) {
  using P = Piece<type>;
  const std::byte* tile = head + position / kKeyTile * cache.k_tile_bytes;
  const int64_t lane = position % kKeyTile;
  const auto* pieces = reinterpret_cast<const uint4*>(tile) + lane;
  const auto* scales = reinterpret_cast<const __half*>(tile + cache.n_pieces * kKeyTile * kPieceBytes) + lane;
#pragma unroll
  for (int i = 0; i < kQueries; ++i) score[i] = 0.0f;
#pragma unroll 2
  for (int64_t piece = 0; piece < cache.n_pieces; ++piece) {
    float key[P::kElements];
    const float d = type == CacheType::q8_0 ? __half2float(scales[piece / 2 * kKeyTile]) : 0.0f;
    P::widen(pieces[piece * kKeyTile], d, key);
    const int64_t j = piece * P::kElements;
#pragma unroll
    for (int e = 0; e < P::kElements; ++e) {
      if (j + e < cache.head_dim) {
#pragma unroll
        for (int i = 0; i < kQueries; ++i) score[i] = num::fma(q[(j + e) * kQueries + i], key[e], score[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kQueries; ++i) score[i] = score[i] * scale;
}

// m of the segment: the largest score that is a number.
template <int kQueries>
__device__ void find_maxima(const float (&score)[kQueries], Shared<kQueries>& s) {
  const int t = static_cast<int>(threadIdx.x);
  const float lowest = __uint_as_float(0xFF800000u);
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    float m = t >= s.begin[i] && t < s.end[i] && score[i] > lowest ? score[i] : lowest;
#pragma unroll
    for (int width = 16; width >= 1; width /= 2) {
      const float other = __shfl_xor_sync(kWholeWarp, m, width);
      m = other > m ? other : m;
    }
    if (t % 32 == 0) s.maxima[t / 32][i] = m;
  }
  __syncthreads();
  if (t < kQueries) {
    float m = s.maxima[0][t];
    for (int w = 1; w < 8; ++w) m = s.maxima[w][t] > m ? s.maxima[w][t] : m;
    s.m[t] = m;
  }
  __syncthreads();
}

// l of the segment (one warp a query), and what it means for the segments so far.
template <int kQueries>
__device__ void sum_and_merge(const float* p, Shared<kQueries>& s) {
  const int i = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (i < kQueries && s.begin[i] < s.end[i]) {
    float sum = 0.0f;
    for (int w = 0; w < 8; ++w) {
      const int key = 32 * w + lane;
      if (key >= s.begin[i] && key < s.end[i]) sum = sum + p[key * kQueries + i];
    }
    sum = fold_lanes(sum);
    if (lane == 0) {
      const float m = s.m_run[i], m_both = s.m[i] > m ? s.m[i] : m;
      s.a[i] = num::exp(m - m_both);
      s.b[i] = num::exp(s.m[i] - m_both);
      s.l[i] = sum;
      s.l_run[i] = s.started[i] ? num::fma(s.l_run[i], s.a[i], sum * s.b[i]) : sum;
      s.m_run[i] = s.started[i] ? m_both : s.m[i];
    }
  }
}

// Column j of the outputs of kGroup queries from query `first` on over the segment's keys; merged into o.
template <CacheType type, int kQueries, int kGroup>
__device__ void add_values(const CacheView& cache, const std::byte* rows, const float* p, int first, int64_t j, const Shared<kQueries>& s,
                           float* o) {
  float sum[kGroup] = {};
  int begin = kSegment, end = 0, all_begin = 0, all_end = kSegment;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    begin = min(begin, s.begin[first + i]), end = max(end, s.end[first + i]);
    all_begin = max(all_begin, s.begin[first + i]), all_end = min(all_end, s.end[first + i]);
  }
  const auto step = [&](int key, bool all) {
    const float value = value_at<type>(rows + key * cache.v_row_bytes, cache.head_dim, j);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (all || (key >= s.begin[first + i] && key < s.end[first + i])) sum[i] = num::fma(p[key * kQueries + first + i], value, sum[i]);
    }
  };
  int key = begin;
  for (; key < min(all_begin, end); ++key) step(key, false);
#pragma unroll 8
  for (; key < all_end; ++key) step(key, true);
  for (; key < end; ++key) step(key, false);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    float& place = o[(first + i) * cache.head_dim + j];
    if (s.begin[first + i] < s.end[first + i]) place = s.started[first + i] ? num::fma(place, s.a[first + i], sum[i] * s.b[first + i]) : sum[i];
  }
}

// One segment, beginning at position `segment`, for the tile's queries.
template <CacheType type_k, CacheType type_v, int kQueries>
__device__ void run_segment(const AttentionTask& task, const TokenTile& tile, int64_t cache_head, int64_t segment, const float* q, float* p,
                            float* o, Shared<kQueries>& s) {
  const CacheView& cache = task.cache;
  const int t = static_cast<int>(threadIdx.x);
  if (t < kQueries) {
    const int64_t position = tile.position + t, first = ops::first_visible(position, task.window);
    s.begin[t] = static_cast<int>(min(max(first - segment, int64_t{0}), int64_t{kSegment}));
    s.end[t] = t < tile.n ? static_cast<int>(min(position + 1 - segment, int64_t{kSegment})) : 0;
    if (s.end[t] < s.begin[t]) s.end[t] = s.begin[t];
  }
  __syncthreads();
  int begin = kSegment, end = 0;
  for (int i = 0; i < kQueries; ++i) {
    if (s.begin[i] < s.end[i]) begin = min(begin, s.begin[i]), end = max(end, s.end[i]);
  }
  float score[kQueries] = {};
  if (t >= begin && t < end) {
    score_key<type_k>(cache, cache.k + cache_head * cache.k_head_bytes, segment + t, q, task.scale, score);
  }
  find_maxima(score, s);
#pragma unroll
  for (int i = 0; i < kQueries; ++i) p[t * kQueries + i] = num::exp(score[i] - s.m[i]);
  __syncthreads();
  sum_and_merge(p, s);
  __syncthreads();
  constexpr int kGroup = kQueries < 4 ? kQueries : 4;
  const std::byte* rows = cache.v + cache_head * cache.v_head_bytes + segment * cache.v_row_bytes;
  for (int64_t item = t; item < cache.head_dim * (kQueries / kGroup); item += kThreads) {
    const int first = static_cast<int>(item / cache.head_dim) * kGroup;
    add_values<type_v, kQueries, kGroup>(cache, rows, p, first, item % cache.head_dim, s, o);
  }
  __syncthreads();
  if (t < kQueries && s.begin[t] < s.end[t]) s.started[t] = 1;
  __syncthreads();
}

// grid: tiles, heads, and with kSplit the segments.
template <CacheType type_k, CacheType type_v, int kQueries, bool kSplit>
__global__ void attention_kernel(AttentionTask task) {
  extern __shared__ float memory[];
  __shared__ Shared<kQueries> s;
  let_next_start();
  wait_for_previous();
  const int64_t head_dim = task.cache.head_dim, head = blockIdx.y;
  float* q = memory;                          // [head_dim][kQueries]
  float* p = q + head_dim * kQueries;         // [kSegment][kQueries]
  float* o = p + kSegment * kQueries;         // [kQueries][head_dim]
  const TokenTile tile = task.tiles[blockIdx.x];
  const int64_t first = ops::first_visible(tile.position, task.window) / kSegment, last = (tile.position + tile.n - 1) / kSegment;
  const int64_t begin = kSplit ? first + blockIdx.z : first, end = kSplit ? begin + 1 : last + 1;
  if (begin > last) return;
  const int t = static_cast<int>(threadIdx.x);
  for (int64_t i = t; i < head_dim * kQueries; i += kThreads) {
    const int64_t query = i % kQueries, j = i / kQueries;
    q[i] = query < tile.n ? task.q[((tile.token + query) * task.n_heads + head) * head_dim + j] : 0.0f;
  }
  if (t < kQueries) s.started[t] = 0, s.m_run[t] = 0.0f, s.l_run[t] = 0.0f;
  __syncthreads();
  const int64_t kv_head = head / (task.n_heads / task.cache.n_kv_heads);
  const int64_t cache_head = tile.sequence * task.cache.n_kv_heads + kv_head;
  for (int64_t i = begin; i < end; ++i) run_segment<type_k, type_v, kQueries>(task, tile, cache_head, i * kSegment, q, p, o, s);
  if constexpr (kSplit) {
    float* out = task.partials + ((int64_t{blockIdx.x} * task.n_heads + head) * task.n_segments + blockIdx.z) * (head_dim + 2);
    if (t == 0) out[0] = s.m_run[0], out[1] = s.l_run[0];
    for (int64_t j = t; j < head_dim; j += kThreads) out[2 + j] = o[j];
  } else {
    for (int64_t i = t; i < head_dim * tile.n; i += kThreads) {
      const int64_t query = i / head_dim;
      task.y[((tile.token + query) * task.n_heads + head) * head_dim + i % head_dim] = o[i] / s.l_run[query];
    }
  }
}

// The segments of one head of one query, ascending. grid: tiles, heads.
__global__ void merge_kernel(AttentionTask task) {
  let_next_start();
  wait_for_previous();
  const TokenTile tile = task.tiles[blockIdx.x];
  const int64_t head_dim = task.cache.head_dim, head = blockIdx.y;
  const int64_t n = tile.position / kSegment - ops::first_visible(tile.position, task.window) / kSegment + 1;
  const float* partials = task.partials + (int64_t{blockIdx.x} * task.n_heads + head) * task.n_segments * (head_dim + 2);
  for (int64_t j = threadIdx.x; j < head_dim; j += blockDim.x) {
    float m = partials[0], l = partials[1], o = partials[2 + j];
    for (int64_t i = 1; i < n; ++i) {
      const float* next = partials + i * (head_dim + 2);
      const float m_both = next[0] > m ? next[0] : m;
      const float a = num::exp(m - m_both), b = num::exp(next[0] - m_both);
      l = num::fma(l, a, next[1] * b);
      o = num::fma(o, a, next[2 + j] * b);
      m = m_both;
    }
    task.y[(tile.token * task.n_heads + head) * head_dim + j] = o / l;
  }
}

template <CacheType type_k, CacheType type_v>
void start(const AttentionTask& task, bool split, const Queue& queue) {
  const int64_t head_dim = task.cache.head_dim;
  const auto n_tiles = static_cast<unsigned>(task.n_tiles), n_heads = static_cast<unsigned>(task.n_heads);
  const auto bytes = [&](int64_t queries) { return static_cast<size_t>((2 * head_dim + kSegment) * queries) * sizeof(float); };
  if (split) {
    launch(queue, attention_kernel<type_k, type_v, 1, true>, dim3(n_tiles, n_heads, static_cast<unsigned>(task.n_segments)), kThreads, bytes(1),
           task);
  } else {
    launch(queue, attention_kernel<type_k, type_v, kTileTokens, false>, dim3(n_tiles, n_heads), kThreads, bytes(kTileTokens), task);
  }
}
static_assert((2 * kHeadDimMax + kSegment) * kTileTokens * 4 <= 44 * 1024);

template <CacheType type_k>
void start_k(const AttentionTask& task, bool split, const Queue& queue) {
  if (task.cache.type_v == CacheType::f32) start<type_k, CacheType::f32>(task, split, queue);
  if (task.cache.type_v == CacheType::f16) start<type_k, CacheType::f16>(task, split, queue);
  if (task.cache.type_v == CacheType::q8_0) start<type_k, CacheType::q8_0>(task, split, queue);
}

void start_any(const AttentionTask& task, bool split, const Queue& queue) {
  if (task.n_tiles == 0) return;
  if (task.cache.type_k == CacheType::f32) start_k<CacheType::f32>(task, split, queue);
  if (task.cache.type_k == CacheType::f16) start_k<CacheType::f16>(task, split, queue);
  if (task.cache.type_k == CacheType::q8_0) start_k<CacheType::q8_0>(task, split, queue);
}

}  // namespace

void attention_tiles(const AttentionTask& task, const Queue& queue) { start_any(task, false, queue); }
void attention_split(const AttentionTask& task, const Queue& queue) { start_any(task, true, queue); }
void attention_merge(const AttentionTask& task, const Queue& queue) {
  if (task.n_tiles == 0) return;
  launch(queue, merge_kernel, dim3(static_cast<unsigned>(task.n_tiles), static_cast<unsigned>(task.n_heads)), 128, 0, task);
}

}  // namespace assay::backend::cuda
