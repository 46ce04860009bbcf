// See decode_attention.h. A block of threads takes a segment of 256 keys for kHeads query heads that share them: thread
// t holds key t, then the threads take columns of the values. What the cache holds already is on its way before the
// kernel waits for the projections.
#include <algorithm>

#include "backend/cuda/attention/cache_pages.cuh"
#include "backend/cuda/attention/cache_pieces.cuh"
#include "backend/cuda/attention/decode_attention.h"
#include "backend/cuda/attention/heads.cuh"
#include "backend/cuda/decode/decode_merge.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "num/math.h"

namespace assay::backend::cuda {
namespace {

using ops::CacheType;
using Task = DecodeAttentionTask;
constexpr int kThreads = kAttentionThreads, kWarps = kAttentionWarps;
constexpr int kSegment = static_cast<int>(ops::kAttentionSegment);
static_assert(kSegment == kThreads);
template <int kHeads>
constexpr int kPiecesAhead =
    kHeads == 1 ? 16 : 8;  // of the thread's key, in registers; 16: all of a head of 128 in half precision

// Shared memory behind the fixed part, in bytes from its beginning.
struct Layout {
  int q, angles, key, scores, staged,
      total;  // queries [kHeads][head_dim], the rotation, the new key, p [256][kHeads], rows of values
};
Layout __host__ __device__ layout_of(int head_dim, int key_bytes, int heads, int staged_bytes) {
  Layout l{};
  l.angles = (heads + 2) * head_dim * 4;  // queries, then the new key and value as floats
  l.key = l.angles + head_dim * 4;
  l.scores = l.key + (key_bytes + 15) / 16 * 16;
  l.staged = l.scores + kSegment * heads * 4;
  l.total = l.staged + staged_bytes;
  return l;
}

template <int kHeads>
struct Shared {
  float maxima[kWarps][kHeads];
  float m[kHeads], l[kHeads];
  MergeShared<kHeads> merge;
};

__device__ void wait_for_rows() { asm volatile("cp.async.wait_all;" : : : "memory"); }

template <int kHeads>
__device__ float head_maximum(float score, bool inside, int g, Shared<kHeads>& s) {
  const float lowest = __uint_as_float(0xFF800000u);
  float m = inside && score > lowest ? score : lowest;
#pragma unroll
  for (int width = 16; width >= 1; width /= 2) {
    const float other = __shfl_xor_sync(kWholeWarp, m, width);
    m = other > m ? other : m;
  }
  if (threadIdx.x % 32 == 0) s.maxima[threadIdx.x / 32][g] = m;
  return m;
}

// Columns j .. j + kColumns of kGroup heads' outputs, over keys begin .. end.
template <CacheType type, int kHeads, int kGroup, int kColumns>
struct Outputs {
  static constexpr int kGroupHeads = kGroup, kGroupColumns = kColumns;
  float sum[kGroup][kColumns] = {};
  __device__ void add(const std::byte* rows, int row_bytes, int head_dim, int begin, int end, const float* p, int first,
                      int j) {
#pragma unroll 8
    for (int key = begin; key < end; ++key) {
      float v[kColumns];
      columns_of<type, kColumns>(rows + (key - begin) * row_bytes, head_dim, j, v);
      float w[kGroup];
      if constexpr (kGroup == 2) {
        const float2 pair = *reinterpret_cast<const float2*>(p + key * kHeads + first);
        w[0] = pair.x, w[1] = pair.y;
      } else {
        w[0] = p[key * kHeads + first];
      }
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sum[g][c] = num::fma(w[g], v[c], sum[g][c]);
      }
    }
  }
};

// The new token's heads: warps 0 .. kHeads - 1 the queries, the next two the key and the value, which go into the cache
// where the block is the one that stores them, and into the block's own memory where its segment holds them. page: of
// the position.
template <CacheType type_k, CacheType type_v, int kHeads>
__device__ void take_heads(const Task& task, int kv_head, int first_head, int64_t position, std::byte* page,
                           bool writes_q, bool holds_new, bool stores, float* rows, const float* angles, std::byte* key,
                           std::byte* value) {
  const HeadsTask& h = task.heads;
  const int head_dim = static_cast<int>(h.cache.head_dim), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool is_q = warp < kHeads, is_k = warp == kHeads;
  if (warp > kHeads + 1 || (!is_q && !holds_new)) return;
  const int64_t at = int64_t{is_q ? first_head + warp : kv_head} * head_dim;
  const float* from = (is_q ? h.q : is_k ? h.k : h.v) + at;
  float* row = rows + warp * head_dim;
  constexpr int kOfLane = static_cast<int>(kHeadDimMax) / 32;
  float x_of_lane[kOfLane];  // all of them asked for before the first is waited for
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (32 * i + lane < head_dim) x_of_lane[i] = __ldcg(from + 32 * i + lane);
  }
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (32 * i + lane < head_dim) row[32 * i + lane] = x_of_lane[i];
  }
  __syncwarp();
  if (is_q || is_k) {
    float* normed = is_q ? (writes_q ? h.q_normed : nullptr) : (stores ? h.k_normed : nullptr);
    float* rotated = is_q ? (writes_q ? h.q_rotated : nullptr) : (stores ? h.k_rotated : nullptr);
    rotate_head(row, head_dim, is_q ? h.q_norm : h.k_norm, is_q ? h.q_eps : h.k_eps, h.rope, angles,
                normed == nullptr ? nullptr : normed + at, rotated == nullptr ? nullptr : rotated + at);
    if (is_q) return;
  }
  const CacheView& cache = h.cache;
  for (int begin = 0; begin < head_dim; begin += 32) {
    const int j = begin + lane;
    const bool inside = j < head_dim;
    const float x = inside ? row[j] : 0.0f;
    const CacheType type = is_k ? type_k : type_v;
    std::byte* own = is_k ? key : value;
    const int64_t scales = is_k ? cache.n_pieces * kPieceBytes : head_dim;
    if (own != nullptr) put(type, x, inside, {own + j * element_bytes(type), own + scales + j / 32 * 2});
    if (stores)
      put(type, x, inside,
          is_k ? key_place(cache, page, kv_head, position, j) : value_place(cache, page, kv_head, position, j));
  }
}

// What the block has: the result where the query sees one segment; else partials, merged by the block that comes last.
template <int kHeads, class Out, int kItems>
__device__ void finish(const Task& task, int first_head, int n, const Out (&out)[kItems], float* room, int n_room,
                       Shared<kHeads>& s) {
  constexpr int kGroup = Out::kGroupHeads, kColumns = Out::kGroupColumns;
  const int t = static_cast<int>(threadIdx.x), head_dim = static_cast<int>(task.heads.cache.head_dim);
  const int columns = head_dim / kColumns, n_items = columns * (kHeads / kGroup);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int item = t + i * kThreads;
    if (item >= n_items) break;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      const int head = item / columns * kGroup + g, j = item % columns * kColumns;
      float* y = n == 1 ? task.y + (first_head + head) * head_dim + j
                        : partials_of(task, first_head + head, static_cast<int>(blockIdx.y), head_dim) + 2 + j;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float sum = n == 1 ? out[i].sum[g][c] / s.l[head] : out[i].sum[g][c];
        y[c] = sum;
        if (n == 1) send_column(task.send, (first_head + head) * head_dim + j + c, sum);
      }
    }
  }
  if (n == 1) return tell_shards(task.send, gridDim.x);
  if (t < kHeads) {
    float* y = partials_of(task, first_head + t, static_cast<int>(blockIdx.y), head_dim);
    y[0] = s.m[t], y[1] = s.l[t];
  }
  merge_if_last<kHeads>(task, head_dim, first_head, n, room, n_room, s.merge);
}

// Scores of the thread's key with the block's queries: of a key in the cache, whose first pieces are here, or of the
// new one.
template <CacheType type_k, int kHeads>
__device__ void score_key(int head_dim, int n_pieces, bool cached, const uint4 (&key)[kPiecesAhead<kHeads>],
                          const uint4* pieces, const __half* key_scales, const float* q, const std::byte* new_key,
                          float (&score)[kHeads]) {
  using P = Piece<type_k>;
  const auto* own_pieces = reinterpret_cast<const uint4*>(new_key);
  const auto* own_scales = reinterpret_cast<const __half*>(new_key + n_pieces * kPieceBytes);
  const auto add_piece = [&](int i, uint4 bytes) {
    float k[P::kElements];
    float d = 0.0f;
    if constexpr (type_k == CacheType::q8_0)
      d = __half2float(cached ? key_scales[i / 2 * kKeyTile] : own_scales[i / 2]);
    P::widen(bytes, d, k);
    add_products<kHeads>(k, q + i * P::kElements, head_dim, score);
  };
#pragma unroll
  for (int i = 0; i < kPiecesAhead<kHeads>; ++i) {
    if (i < n_pieces) add_piece(i, cached ? key[i] : own_pieces[i]);
  }
#pragma unroll 4
  for (int i = kPiecesAhead<kHeads>; i < n_pieces; ++i)
    add_piece(i, cached ? __ldcg(pieces + i * kKeyTile) : own_pieces[i]);
}

// Lanes32 over the keys of a head, by one warp.
template <int kHeads>
__device__ __forceinline__ float sum_of_keys(const float* p, int begin, int end, int lane) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int i = 32 * w + lane;
    if (i >= begin && i < end) sum = sum + p[i * kHeads];
  }
  return fold_lanes(sum);
}

// grid: key heads times their groups of kHeads query heads, segments.
template <CacheType type_k, CacheType type_v, int kHeads>
__global__ void __launch_bounds__(kThreads, 2) decode_attention_kernel(const __grid_constant__ Task task) {
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ Shared<kHeads> s;
  let_next_start();
  const CacheView& cache = task.heads.cache;
  const int head_dim = static_cast<int>(cache.head_dim), n_pieces = static_cast<int>(cache.n_pieces),
            t = static_cast<int>(threadIdx.x);
  const int first_head = static_cast<int>(blockIdx.x) * kHeads;
  const int per_key = static_cast<int>(task.heads.n_heads / cache.n_kv_heads), kv_head = first_head / per_key;
  // Of the right segment where there is no window; as long as the position takes.
  SegmentPages pages(table_of_tile(cache, 0), blockIdx.y);
  const int64_t position = task.heads.positions[0];
  const int64_t first_key = ops::first_visible(position, task.window), first = first_key / kSegment,
                last = position / kSegment;
  const int64_t i_segment = first + blockIdx.y, segment = i_segment * kSegment;
  if (i_segment > last) return;
  const int begin = static_cast<int>(max(first_key - segment, int64_t{0}));
  const int end = static_cast<int>(min(position + 1 - segment, int64_t{kSegment}));
  const bool holds_new = i_segment == last;
  const int own = holds_new ? end - 1 : kSegment;  // the key that is not in the cache yet
  const int64_t v_at = cache.v + kv_head * cache.v_head_bytes;
  const int row_bytes = static_cast<int>(cache.v_row_bytes);
  const Layout at = layout_of(head_dim, n_pieces * kPieceBytes + head_dim / 16, kHeads, 0);
  auto* q = reinterpret_cast<float*>(memory);
  auto* angles = reinterpret_cast<float*>(memory + at.angles);
  std::byte* new_key = memory + at.key;
  auto* p = reinterpret_cast<float*>(memory + at.scores);
  std::byte* staged = memory + at.staged;
  // Ahead of the wait: the rotation, and the keys and values that earlier tokens left.
  const RopeShape& rope = task.heads.rope;
  for (int j = t; j < rope.dim; j += kThreads) angles[j] = task.heads.table[position * rope.dim + j];
  const int in_cache = min(end, own);
  if (first > 0) pages = SegmentPages(table_of_tile(cache, 0), i_segment);
  fetch_rows<kThreads>(pages, v_at, row_bytes, begin, min(in_cache, begin + task.tile_keys), staged);
  const std::byte* tile =
      pages.of(t) + cache.k + kv_head * cache.k_head_bytes + t / kKeyTile % kPageTiles * cache.k_tile_bytes;
  const auto* pieces = reinterpret_cast<const uint4*>(tile) + t % kKeyTile;
  const auto* key_scales = reinterpret_cast<const __half*>(tile + n_pieces * kKeyTile * kPieceBytes) + t % kKeyTile;
  const bool visible = t >= begin && t < end, cached = visible && t != own;
  uint4 key[kPiecesAhead<kHeads>] = {};
#pragma unroll
  for (int i = 0; i < kPiecesAhead<kHeads>; ++i) {
    if (cached && i < n_pieces) key[i] = __ldcg(pieces + i * kKeyTile);
  }
  __syncthreads();
  wait_for_previous();
  // Else the value is read back from the cache with its tile.
  const bool own_staged = holds_new && own < begin + task.tile_keys;
  const bool stores = holds_new && (first_head % per_key == 0 || !own_staged);
  take_heads<type_k, type_v, kHeads>(task, kv_head, first_head, position, pages.of(end - 1), blockIdx.y == 0, holds_new,
                                     stores, q, angles, new_key,
                                     own_staged ? staged + (own - begin) * row_bytes : nullptr);
  __syncthreads();
  float score[kHeads] = {};
  if (visible) score_key<type_k, kHeads>(head_dim, n_pieces, cached, key, pieces, key_scales, q, new_key, score);
#pragma unroll
  for (int g = 0; g < kHeads; ++g) {
    score[g] = score[g] * task.scale;
    head_maximum(score[g], visible, g, s);
  }
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kHeads; ++g) {
    float m = s.maxima[0][g];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) m = s.maxima[w][g] > m ? s.maxima[w][g] : m;
    p[t * kHeads + g] = num::exp(score[g] - m);
    if (t == g) s.m[g] = m;
  }
  wait_for_rows();
  __syncthreads();
  const int warp = t / 32, lane = t % 32;
  if (warp >= kWarps - kHeads) {  // Lanes32 over the keys, by warps that have the fewest columns of values
    const int g = warp - (kWarps - kHeads);
    const float sum = sum_of_keys<kHeads>(p + g, begin, end, lane);
    if (lane == 0) s.l[g] = sum;
  }
  constexpr int kGroup = kHeads == 1 ? 1 : 2, kColumns = kHeads == 1 ? 1 : 2;
  constexpr int kItems = (static_cast<int>(kHeadDimMax) / kColumns * (kHeads / kGroup) + kThreads - 1) / kThreads;
  Outputs<type_v, kHeads, kGroup, kColumns> out[kItems];
  const int columns = head_dim / kColumns, n_items = columns * (kHeads / kGroup);
  for (int from = begin; from < end; from += task.tile_keys) {
    const int to = min(from + task.tile_keys, end);
    if (from > begin) {
      __syncthreads();
      fetch_rows<kThreads>(SegmentPages(table_of_tile(cache, 0), i_segment), v_at, row_bytes, from, to, staged);
      wait_for_rows();
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int item = t + i * kThreads;
      if (item < n_items)
        out[i].add(staged, row_bytes, head_dim, from, to, p, item / columns * kGroup, item % columns * kColumns);
    }
  }
  __syncthreads();
  finish<kHeads>(task, first_head, static_cast<int>(last - first) + 1, out, reinterpret_cast<float*>(staged),
                 task.tile_keys * row_bytes / 4, s);
}

template <CacheType type_k, CacheType type_v, int kHeads>
void start(const Task& task, const Queue& queue) {
  const CacheView& cache = task.heads.cache;
  const auto head_dim = static_cast<int>(cache.head_dim);
  const Layout layout = layout_of(head_dim, static_cast<int>(cache.n_pieces * kPieceBytes) + head_dim / 16, kHeads,
                                  task.tile_keys * static_cast<int>(cache.v_row_bytes));
  const auto kernel = decode_attention_kernel<type_k, type_v, kHeads>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.total);
  take_decode_cut(kernel);
  launch(queue, kernel,
         dim3(static_cast<unsigned>(task.heads.n_heads / kHeads), static_cast<unsigned>(task.n_segments)), kThreads,
         static_cast<size_t>(layout.total), task);
}

template <CacheType type_k>
void start_k(const Task& task, bool four, const Queue& queue) {
  const CacheType type_v = task.heads.cache.type_v;
  const auto begin = [&]<CacheType type>() {
    four ? start<type_k, type, 4>(task, queue) : start<type_k, type, 1>(task, queue);
  };
  if (type_v == CacheType::f32) begin.template operator()<CacheType::f32>();
  if (type_v == CacheType::f16) begin.template operator()<CacheType::f16>();
  if (type_v == CacheType::q8_0) begin.template operator()<CacheType::q8_0>();
}

}  // namespace

void decode_attention(AttentionKernel kernel, const DecodeAttention& attention, const Queue& queue) {
  constexpr int64_t kStagedBytes = 64 * 1024;
  const HeadsTask& heads = attention.heads;
  Task task;
  task.heads = heads;
  task.y = attention.y;
  task.window = attention.window;
  task.n_segments = static_cast<int32_t>(attention.n_segments);
  task.scale = attention.scale;
  task.partials = attention.partials;
  task.arrived = attention.arrived;
  task.send = attention.send;
  task.lets_early = attention.lets_early;
  task.tile_keys = static_cast<int32_t>(std::min(kStagedBytes / heads.cache.v_row_bytes, int64_t{kSegment}));
  const bool four = kernel == AttentionKernel::decode_halves_of_four || kernel == AttentionKernel::decode_of_four;
  const bool halves = kernel == AttentionKernel::decode_halves_of_four || kernel == AttentionKernel::decode_halves;
  if (halves) return decode_attention_f16(task, four, queue);
  if (heads.cache.type_k == CacheType::f32) start_k<CacheType::f32>(task, four, queue);
  if (heads.cache.type_k == CacheType::f16) start_k<CacheType::f16>(task, four, queue);
  if (heads.cache.type_k == CacheType::q8_0) start_k<CacheType::q8_0>(task, four, queue);
}

}  // namespace assay::backend::cuda
