// Attention of every kind (plain_rows.h). A block of 256 threads takes one head of one token and walks the segments of
// 256 keys:
//
//   shared   q [head_dim], p [256], o [v_dim]
//   scores   thread t: key t of the segment against q, one chain
//   sum      warp 0: lane l the probabilities of keys l, l + 32, ..; folded
//   values   thread t: columns t, t + 256, ..: each one chain over the segment's keys, merged into o
#include "backend/cuda/attention/cache_pages.cuh"
#include "backend/cuda/attention/cache_pieces.cuh"
#include "backend/cuda/rows/plain_rows.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/math.h"

namespace assay::backend::cuda {
namespace {

using ops::CacheType;
constexpr int kAnyThreads = static_cast<int>(ops::kAttentionSegment);

template <CacheType type>
__device__ float score_of(const CacheView& cache, const std::byte* tile, int64_t lane, const float* q) {
  using P = Piece<type>;
  const auto* pieces = reinterpret_cast<const uint4*>(tile) + lane;
  const auto* scales = reinterpret_cast<const __half*>(tile + cache.n_pieces * kKeyTile * kPieceBytes) + lane;
  float sum = 0.0f;
  for (int64_t piece = 0; piece < cache.n_pieces; ++piece) {
    float key[P::kElements];
    const float d = type == CacheType::q8_0 ? __half2float(scales[piece / 2 * kKeyTile]) : 0.0f;
    P::widen(pieces[piece * kKeyTile], d, key);
#pragma unroll
    for (int e = 0; e < P::kElements; ++e) {
      const int64_t j = piece * P::kElements + e;
      if (j < cache.head_dim) sum = num::fma(q[j], key[e], sum);
    }
  }
  return sum;
}

// Element j of a key, where it is a value's.
template <CacheType type>
__device__ float key_element(const CacheView& cache, const std::byte* tile, int64_t lane, int64_t j) {
  constexpr int64_t kBytes = type == CacheType::f32 ? 4 : type == CacheType::f16 ? 2 : 1;
  const int64_t at = j * kBytes;
  const std::byte* element = tile + (at / kPieceBytes * kKeyTile + lane) * kPieceBytes + at % kPieceBytes;
  if constexpr (type == CacheType::f32) return *reinterpret_cast<const float*>(element);
  if constexpr (type == CacheType::f16) return __half2float(*reinterpret_cast<const __half*>(element));
  const auto* scales = reinterpret_cast<const __half*>(tile + cache.n_pieces * kKeyTile * kPieceBytes);
  return __half2float(scales[j / 32 * kKeyTile + lane]) * static_cast<float>(*reinterpret_cast<const int8_t*>(element));
}

__device__ float block_max(float x, float* of_warps) {
#pragma unroll
  for (int width = 16; width >= 1; width /= 2) {
    const float other = __shfl_xor_sync(kWholeWarp, x, width);
    x = other > x ? other : x;
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  float m = of_warps[0];
  for (int w = 1; w < kAnyThreads / 32; ++w) m = of_warps[w] > m ? of_warps[w] : m;
  return m;
}

// First and last position that the token sees. A sequence that is not causal is run whole, so that its tokens in the
// batch are all of it.
__device__ void find_visible(const AnyAttentionTask& task, int sequence, int64_t position, int64_t& first,
                             int64_t& last) {
  const int64_t window = task.window;
  if (task.causal) {
    const int64_t in_window = window > 0 && position >= window ? position - window + 1 : 0,
                  in_chunk = task.chunk > 0 ? position / task.chunk * task.chunk : 0;
    first = in_window > in_chunk ? in_window : in_chunk;
    last = position;
    return;
  }
  int64_t n = 0;
  for (int64_t t = 0; t < task.n_tokens; t += kAnyThreads) {
    n += __syncthreads_count(t + threadIdx.x < task.n_tokens && task.sequences[t + threadIdx.x] == sequence);
  }
  first = window > 0 && position > window / 2 ? position - window / 2 : 0;
  last = window > 0 && position + window / 2 < n ? position + window / 2 : n - 1;
}

// grid: tiles, heads, tokens of a tile.
template <CacheType type_k, CacheType type_v>
__global__ void __launch_bounds__(kAnyThreads) any_attention_kernel(const __grid_constant__ AnyAttentionTask task) {
  extern __shared__ __align__(16) float memory[];
  __shared__ float of_warps[kAnyThreads / 32], l_shared;
  const CacheView& cache = task.cache;
  const TokenTile tile = task.tiles[blockIdx.x];
  if (static_cast<int>(blockIdx.z) >= tile.n) return;
  const int64_t token = tile.token + static_cast<int64_t>(blockIdx.z),
                position = tile.position + static_cast<int64_t>(blockIdx.z), head = blockIdx.y;
  const int64_t v_dim = cache.v_dim;
  const int t = static_cast<int>(threadIdx.x);
  float *q = memory, *p = q + cache.head_dim, *o = p + kAnyThreads;
  for (int64_t j = t; j < cache.head_dim; j += kAnyThreads)
    q[j] = task.q[(token * task.n_heads + head) * cache.head_dim + j];
  int64_t first, last;
  find_visible(task, tile.sequence, position, first, last);
  const int64_t kv_head = head / (task.n_heads / cache.n_kv_heads);
  const PageTable table = table_of(cache, tile.sequence);
  float m = 0.0f, l = 0.0f;
  bool started = false;
  __syncthreads();
  for (int64_t segment = first / kAnyThreads; segment <= last / kAnyThreads; ++segment) {
    const int64_t key = segment * kAnyThreads + t;
    const bool visible = key >= first && key <= last;
    float score = __uint_as_float(0xFF800000u);
    if (visible) {
      score = score_of<type_k>(cache, key_tile(cache, table, kv_head, key / kKeyTile), key % kKeyTile, q) * task.scale;
      if (task.softcap > 0) score = num::softcap(score, task.softcap);
    }
    const float m_segment = block_max(score == score ? score : __uint_as_float(0xFF800000u), of_warps);
    p[t] = visible ? num::exp(score - m_segment) : 0.0f;
    __syncthreads();
    const int begin = static_cast<int>(first > segment * kAnyThreads ? first - segment * kAnyThreads : 0);
    const int end = static_cast<int>(last + 1 - segment * kAnyThreads < kAnyThreads ? last + 1 - segment * kAnyThreads
                                                                                    : kAnyThreads);
    if (t < 32) {
      float sum = 0.0f;
      for (int k = t; k < kAnyThreads; k += 32) sum = k >= begin && k < end ? sum + p[k] : sum;
      sum = fold_lanes(sum);
      if (t == 0) l_shared = sum;
    }
    __syncthreads();
    const float m_both = m_segment > m ? m_segment : m;
    const float a = num::exp(m - m_both), b = num::exp(m_segment - m_both), l_segment = l_shared;
    for (int64_t j = t; j < v_dim; j += kAnyThreads) {
      float sum = 0.0f;
      for (int k = begin; k < end; ++k) {
        const int64_t at = segment * kAnyThreads + k;
        const float value =
            cache.values_in_keys
                ? key_element<type_k>(cache, key_tile(cache, table, kv_head, at / kKeyTile), at % kKeyTile, j)
                : value_at<type_v>(value_row(cache, table, kv_head, at), v_dim, j);
        sum = num::fma(p[k], value, sum);
      }
      o[j] = started ? num::fma(o[j], a, sum * b) : sum;
    }
    l = started ? num::fma(l, a, l_segment * b) : l_segment;
    m = started ? m_both : m_segment;
    started = true;
    __syncthreads();
  }
  float a = 1.0f;
  if (task.sinks != nullptr) {
    const float sink = task.sinks[head], m_both = sink > m ? sink : m;
    a = num::exp(m - m_both);
    l = num::fma(l, a, num::exp(sink - m_both));
  }
  float* y = task.y + (token * task.n_heads + head) * v_dim;
  for (int64_t j = t; j < v_dim; j += kAnyThreads) y[j] = (task.sinks != nullptr ? o[j] * a : o[j]) / l;
}

template <CacheType type_k, CacheType type_v>
void start_any_attention(const AnyAttentionTask& task, const Queue& queue) {
  const auto kernel = any_attention_kernel<type_k, type_v>;
  const size_t bytes = static_cast<size_t>(task.cache.head_dim + kAnyThreads + task.cache.v_dim) * sizeof(float);
  if (bytes > 47 * 1024) require(allow_shared(kernel, bytes), "shared memory");
  const dim3 grid(static_cast<unsigned>(task.n_tiles), static_cast<unsigned>(task.n_heads),
                  static_cast<unsigned>(task.tile_tokens));
  kernel<<<grid, kAnyThreads, bytes, queue.stream>>>(task);
}

template <CacheType type_k>
void start_any_keys(const AnyAttentionTask& task, const Queue& queue) {
  if (task.cache.type_v == CacheType::f32) start_any_attention<type_k, CacheType::f32>(task, queue);
  if (task.cache.type_v == CacheType::f16) start_any_attention<type_k, CacheType::f16>(task, queue);
  if (task.cache.type_v == CacheType::q8_0) start_any_attention<type_k, CacheType::q8_0>(task, queue);
}

}  // namespace

void attention_any(const AnyAttentionTask& task, const Queue& queue) {
  if (task.n_tiles == 0) return;
  if (task.cache.type_k == CacheType::f32) start_any_keys<CacheType::f32>(task, queue);
  if (task.cache.type_k == CacheType::f16) start_any_keys<CacheType::f16>(task, queue);
  if (task.cache.type_k == CacheType::q8_0) start_any_keys<CacheType::q8_0>(task, queue);
}

}  // namespace assay::backend::cuda
