// Attention of many tokens over a cache of f16: a block takes up to 16 tokens of 4 heads that share their keys, 64 queries in all, and walks
// the segments. A thread holds 8 or 4 keys x 8 queries of the scores, then 4 queries x 4 columns of the outputs, whose values come through
// shared memory as floats. Every chain, fold and merge is the contract's, as in attention.cu.
#include <cuda_fp16.h>

#include "backend/cuda/attention.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/warp.cuh"
#include "num/lanes.h"
#include "num/math.h"
#include "ops/attention.h"

namespace assay::backend::cuda {
namespace {

constexpr int kSegment = static_cast<int>(ops::kAttentionSegment);
constexpr int kHeads = 4, kQueries = kTileTokens * kHeads;  // of a block; query u is head u % 4 of token u / 4
static_assert(kSegment == 256 && kQueries == 64 && kKeyTile == 32);

struct Shared {
  float p[kSegment][kQueries];   // probabilities of the segment; 0 where a key is masked
  float lanes[32][kQueries];     // their sums by position % 32
  float maxima[16][kQueries];    // of the warps
  float m[kQueries];             // of the segment
  float m_run[kQueries], l_run[kQueries], a[kQueries], b[kQueries];
  int started[kTileTokens];
};

template <int kHeadDim>
class Prefill {
 public:
  static constexpr int kThreads = 4 * kHeadDim, kWarps = kThreads / 32;
  static constexpr int kKeys = 8 * 8 / kWarps, kWarpKeys = 4 * kKeys;  // of the scores of a thread, of a warp
  static constexpr int kColumns = 4;                                   // of the outputs of a thread
  static constexpr int kStaged = 32;                                   // keys whose values are staged at a time
  static constexpr size_t kBytes = sizeof(Shared) + sizeof(float) * kHeadDim * (kQueries + 2 * kStaged);

  __device__ Prefill(const AttentionTask& task, const TokenTile& tile, int64_t kv_head, int64_t head_0, int64_t head_end, std::byte* memory)
      : task_(task), tile_(tile), head_0_(head_0), head_end_(head_end), s_(*reinterpret_cast<Shared*>(memory)),
        q_(reinterpret_cast<float*>(memory + sizeof(Shared))), staged_(q_ + kHeadDim * kQueries),
        own_token_(static_cast<int>(threadIdx.x) / 32 % 2 * 8 + static_cast<int>(threadIdx.x) % 32 / 4),
        column_(static_cast<int>(threadIdx.x) / 64 * 16 + static_cast<int>(threadIdx.x) % 4 * kColumns) {
    const int64_t cache_head = tile.sequence * task.cache.n_kv_heads + kv_head;
    keys_ = task.cache.k + cache_head * task.cache.k_head_bytes;
    values_ = task.cache.v + cache_head * task.cache.v_head_bytes;
  }

  __device__ void run() {
    const int t = static_cast<int>(threadIdx.x);
    for (int i = t; i < kHeadDim * kQueries; i += kThreads) {
      const int u = i % kQueries, j = i / kQueries;
      const int64_t head = head_0_ + u % kHeads;
      q_[i] = u / kHeads < tile_.n && head < head_end_ ? task_.q[((tile_.token + u / kHeads) * task_.n_heads + head) * kHeadDim + j] : 0.0f;
    }
    if (t < kQueries) s_.m_run[t] = s_.l_run[t] = 0.0f;
    if (t < kTileTokens) s_.started[t] = 0;
    __syncthreads();
    const int64_t first = ops::first_visible(tile_.position, task_.window) / kSegment, last = (tile_.position + tile_.n - 1) / kSegment;
    for (int64_t i = first; i <= last; ++i) run_segment(i * kSegment);
    write();
  }

 private:
  // The keys of the segment that a token sees, counted from its first; a token that is not there sees none.
  __device__ int begin_of(int token, int64_t segment) const {
    return static_cast<int>(min(max(ops::first_visible(tile_.position + token, task_.window) - segment, int64_t{0}), int64_t{kSegment}));
  }
  __device__ int end_of(int token, int64_t segment) const {
    return token < tile_.n ? static_cast<int>(min(max(tile_.position + token + 1 - segment, int64_t{0}), int64_t{kSegment})) : 0;
  }

  // Whether every token sees all of the segment.
  __device__ bool is_whole(int64_t segment) const {
    return tile_.n == kTileTokens && segment + kSegment <= tile_.position + 1 &&
           ops::first_visible(tile_.position + kTileTokens - 1, task_.window) <= segment;
  }

  __device__ void run_segment(int64_t segment) {
    const int begin = begin_of(0, segment) / 32, end = (end_of(tile_.n - 1, segment) + 31) / 32;  // tiles of keys that any token sees
    const int warp = static_cast<int>(threadIdx.x) / 32, tile = warp * kWarpKeys / 32;
    float score[kKeys][8];
    if (tile >= begin && tile < end) {
      score_keys(segment, warp, score);
      is_whole(segment) ? find_maxima<true>(segment, warp, score) : find_maxima<false>(segment, warp, score);
    } else if (static_cast<int>(threadIdx.x) % 32 < 8) {
#pragma unroll
      for (int i = 0; i < 8; ++i) s_.maxima[warp][query_of(i)] = __uint_as_float(0xFF800000u);
    }
    __syncthreads();
    if (threadIdx.x < kQueries) {
      float m = s_.maxima[0][threadIdx.x];
      for (int w = 1; w < kWarps; ++w) m = s_.maxima[w][threadIdx.x] > m ? s_.maxima[w][threadIdx.x] : m;
      s_.m[threadIdx.x] = m;
    }
    __syncthreads();
    if (tile >= begin && tile < end) {
      is_whole(segment) ? put_probabilities<true>(segment, warp, score) : put_probabilities<false>(segment, warp, score);
    }
    __syncthreads();
    sum_lanes(begin, end);
    __syncthreads();
    if (threadIdx.x < kQueries) merge_sums(segment);
    add_values(segment, begin, end);
    __syncthreads();
    if (threadIdx.x < kTileTokens && begin_of(static_cast<int>(threadIdx.x), segment) < end_of(static_cast<int>(threadIdx.x), segment)) {
      s_.started[threadIdx.x] = 1;
    }
    __syncthreads();
  }

  // Of a warp's keys a lane scores keys lane / 8 + 4 j; of the 64 queries 4 (lane % 8) + i and 32 further.
  __device__ static int query_of(int i) { return i / 4 * 32 + static_cast<int>(threadIdx.x) % 8 * 4 + i % 4; }
  __device__ static int key_of(int j) { return static_cast<int>(threadIdx.x) % 32 / 8 + 4 * j; }

  __device__ void score_keys(int64_t segment, int warp, float (&score)[kKeys][8]) const {
    const auto* halves = reinterpret_cast<const uint2*>(keys_ + (segment / kKeyTile + warp * kWarpKeys / 32) * task_.cache.k_tile_bytes) +
                         2 * (warp * kWarpKeys % 32 + key_of(0));
    const float* q = q_ + query_of(0);
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) score[j][i] = 0.0f;
    }
#pragma unroll 2
    for (int four = 0; four < kHeadDim / 4; ++four) {  // elements of the keys; 8 lie in a piece
      uint2 key[kKeys];
#pragma unroll
      for (int j = 0; j < kKeys; ++j) key[j] = halves[four / 2 * 2 * kKeyTile + four % 2 + 8 * j];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float4 low = *reinterpret_cast<const float4*>(q + (4 * four + e) * kQueries);
        const float4 high = *reinterpret_cast<const float4*>(q + (4 * four + e) * kQueries + 32);
        const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int j = 0; j < kKeys; ++j) {
          const uint32_t w = e / 2 == 0 ? key[j].x : key[j].y;
          const float k = __half2float(__ushort_as_half(static_cast<unsigned short>(e % 2 == 0 ? w & 0xFFFFu : w >> 16)));
#pragma unroll
          for (int i = 0; i < 8; ++i) score[j][i] = num::fma(x[i], k, score[j][i]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) score[j][i] = score[j][i] * task_.scale;
    }
  }

  template <bool kWhole>
  __device__ void find_maxima(int64_t segment, int warp, const float (&score)[kKeys][8]) {
    const float lowest = __uint_as_float(0xFF800000u);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int token = query_of(i) / kHeads, begin = kWhole ? 0 : begin_of(token, segment), end = kWhole ? kSegment : end_of(token, segment);
      float m = lowest;
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        const int key = kWarpKeys * warp + key_of(j);
        if ((kWhole || (key >= begin && key < end)) && score[j][i] > m) m = score[j][i];
      }
#pragma unroll
      for (int width = 8; width <= 16; width *= 2) {
        const float other = __shfl_xor_sync(kWholeWarp, m, width);
        m = other > m ? other : m;
      }
      if (threadIdx.x % 32 < 8) s_.maxima[warp][query_of(i)] = m;
    }
  }

  template <bool kWhole>
  __device__ void put_probabilities(int64_t segment, int warp, const float (&score)[kKeys][8]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int u = query_of(4 * half), token = u / kHeads;
      const int begin = kWhole ? 0 : begin_of(token, segment), end = kWhole ? kSegment : end_of(token, segment);
      const float4 m = *reinterpret_cast<const float4*>(s_.m + u);
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        const int key = kWarpKeys * warp + key_of(j);
        const bool sees = kWhole || (key >= begin && key < end);
        const float* s = score[j] + 4 * half;
        float4 p = {0.0f, 0.0f, 0.0f, 0.0f};
        if (sees) p = {num::exp(s[0] - m.x), num::exp(s[1] - m.y), num::exp(s[2] - m.z), num::exp(s[3] - m.w)};
        *reinterpret_cast<float4*>(&s_.p[key][u]) = p;
      }
    }
  }

  // Sums of the probabilities by position % 32, ascending; a masked key's 0 changes no bit of a sum that begins at +0.
  __device__ void sum_lanes(int begin, int end) {
#pragma unroll
    for (int item = static_cast<int>(threadIdx.x); item < 32 * kQueries / 4; item += kThreads) {
      const int lane = item / (kQueries / 4), u = item % (kQueries / 4) * 4;
      float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
      for (int tile = begin; tile < end; ++tile) {
        const float4 p = *reinterpret_cast<const float4*>(&s_.p[32 * tile + lane][u]);
        sum = {sum.x + p.x, sum.y + p.y, sum.z + p.z, sum.w + p.w};
      }
      *reinterpret_cast<float4*>(&s_.lanes[lane][u]) = sum;
    }
  }

  // One thread a query: the fold, and what the segment means for those before.
  __device__ void merge_sums(int64_t segment) {
    const int u = static_cast<int>(threadIdx.x), token = u / kHeads;
    if (begin_of(token, segment) >= end_of(token, segment)) return;
    float lane[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) lane[i] = s_.lanes[i][u];
#pragma unroll
    for (int width = 16; width >= 1; width /= 2) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (i < width) lane[i] = lane[i] + lane[i + width];
      }
    }
    const float sum = lane[0], m = s_.m_run[u], m_segment = s_.m[u], m_both = m_segment > m ? m_segment : m;
    const bool started = s_.started[token] != 0;
    s_.a[u] = num::exp(m - m_both);
    s_.b[u] = num::exp(m_segment - m_both);
    s_.l_run[u] = started ? num::fma(s_.l_run[u], s_.a[u], sum * s_.b[u]) : sum;
    s_.m_run[u] = started ? m_both : m_segment;
  }

  // Values of 32 keys on their way to shared memory: 8 elements a thread.
  __device__ uint4 load_values(int64_t first_key) const {
    const int t = static_cast<int>(threadIdx.x);
    constexpr int kPerKey = kHeadDim / 8;
    return *reinterpret_cast<const uint4*>(values_ + (first_key + t / kPerKey) * int64_t{kHeadDim * 2} + t % kPerKey * 16);
  }
  __device__ void stage_values(uint4 v, int side) const {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = __half2float(__ushort_as_half(static_cast<unsigned short>(i % 2 == 0 ? w[i / 2] & 0xFFFFu : w[i / 2] >> 16)));
    auto* to = reinterpret_cast<float4*>(staged_ + side * kStaged * kHeadDim + static_cast<int>(threadIdx.x) * 8);
    to[0] = {x[0], x[1], x[2], x[3]};
    to[1] = {x[4], x[5], x[6], x[7]};
  }
  struct Pair {
    float4 v, p;  // four columns of a value, its probabilities for the four queries
  };
  __device__ static Pair pair_at(const float* values, const float* probabilities, int key) {
    return {*reinterpret_cast<const float4*>(values + key * kHeadDim), *reinterpret_cast<const float4*>(probabilities + key * kQueries)};
  }
  __device__ static void add_value(const Pair& x, float (&sum)[kHeads][kColumns]) {
    const float v[4] = {x.v.x, x.v.y, x.v.z, x.v.w}, p[4] = {x.p.x, x.p.y, x.p.z, x.p.w};
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sum[h][c] = num::fma(p[h], v[c], sum[h][c]);
    }
  }

  // 4 neighbouring lanes have a token, its 4 queries; tiles of keys from begin_tile to end_tile are staged. A token's chain has its own keys only.
  __device__ void add_values(int64_t segment, int begin_tile, int end_tile) {
    const int begin = begin_of(own_token_, segment), end = end_of(own_token_, segment);
    float sum[kHeads][kColumns] = {};
    uint4 next = load_values(segment + kStaged * begin_tile);
    for (int tile = begin_tile; tile < end_tile; ++tile) {
      stage_values(next, tile % 2);
      if (tile + 1 < end_tile) next = load_values(segment + kStaged * (tile + 1));
      __syncthreads();
      const float* values = staged_ + tile % 2 * kStaged * kHeadDim + column_;
      const float* probabilities = &s_.p[kStaged * tile][kHeads * own_token_];
      const int from = max(begin - kStaged * tile, 0), to = min(end - kStaged * tile, kStaged);
      if (from == 0 && to == kStaged) {
        Pair pair[2] = {pair_at(values, probabilities, 0), pair_at(values, probabilities, 1)};  // loaded two keys ahead
#pragma unroll 8
        for (int key = 0; key < kStaged; ++key) {
          const Pair now = pair[key % 2];
          if (key + 2 < kStaged) pair[key % 2] = pair_at(values, probabilities, key + 2);
          add_value(now, sum);
        }
      } else {
        for (int key = from; key < to; ++key) add_value(pair_at(values, probabilities, key), sum);
      }
    }
    __syncthreads();  // the factors are there
    if (begin >= end) return;
    const bool started = s_.started[own_token_] != 0;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float a = s_.a[kHeads * own_token_ + h], b = s_.b[kHeads * own_token_ + h];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) o_[h][c] = started ? num::fma(o_[h][c], a, sum[h][c] * b) : sum[h][c];
    }
  }

  __device__ void write() const {
    if (own_token_ >= tile_.n) return;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (head_0_ + h >= head_end_) continue;
      const float l = s_.l_run[kHeads * own_token_ + h];
      *reinterpret_cast<float4*>(task_.y + ((tile_.token + own_token_) * task_.n_heads + head_0_ + h) * kHeadDim + column_) = {
          o_[h][0] / l, o_[h][1] / l, o_[h][2] / l, o_[h][3] / l};
    }
  }

  const AttentionTask& task_;
  const TokenTile tile_;
  const int64_t head_0_, head_end_;
  Shared& s_;
  float *q_, *staged_;  // queries, element by element; two stages of values
  const int own_token_, column_;
  const std::byte *keys_, *values_;
  float o_[kHeads][kColumns];
};

// grid: groups of 4 heads of every KV head; tiles, the longest first.
template <int kHeadDim>
__global__ void __launch_bounds__(4 * kHeadDim, kHeadDim == 64 ? 2 : 1) prefill_kernel(const __grid_constant__ AttentionTask task, int n_groups) {
  extern __shared__ __align__(128) std::byte memory[];
  let_next_start();
  wait_for_previous();
  const TokenTile tile = task.tiles[gridDim.y - 1 - blockIdx.y];
  const int64_t per_kv_head = task.n_heads / task.cache.n_kv_heads, kv_head = blockIdx.x / n_groups;
  const int64_t head_0 = kv_head * per_kv_head + blockIdx.x % n_groups * kHeads;
  Prefill<kHeadDim>(task, tile, kv_head, head_0, (kv_head + 1) * per_kv_head, memory).run();
}

template <int kHeadDim>
bool start(const AttentionTask& task, const Queue& queue) {
  constexpr size_t kBytes = Prefill<kHeadDim>::kBytes;
  if (cudaFuncSetAttribute(prefill_kernel<kHeadDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)) != cudaSuccess) {
    cudaGetLastError();  // forgotten: it is an answer
    return false;
  }
  const int64_t n_groups = (task.n_heads / task.cache.n_kv_heads + kHeads - 1) / kHeads;
  launch(queue, prefill_kernel<kHeadDim>, dim3(static_cast<unsigned>(task.cache.n_kv_heads * n_groups), static_cast<unsigned>(task.n_tiles)),
         4 * kHeadDim, kBytes, task, static_cast<int>(n_groups));
  return true;
}

}  // namespace

bool attention_prefill(const AttentionTask& task, const Queue& queue) {
  const CacheView& cache = task.cache;
  if (cache.type_k != ops::CacheType::f16 || cache.type_v != ops::CacheType::f16) return false;
  if (task.n_heads < 3 * cache.n_kv_heads) return false;  // too few heads share keys
  if (cache.head_dim == 64) return start<64>(task, queue);
  if (cache.head_dim == 128) return start<128>(task, queue);
  return false;
}

}  // namespace assay::backend::cuda
