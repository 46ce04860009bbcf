// Attention where every query is alone with its sequence: many sequences that decode together, or a few tokens of one.
// A block of threads takes a segment of 256 keys of one query for kHeads heads that share them: thread t scores key t,
// then threads take columns of the values, for all heads at once. The segments' results are merged by those who read
// them (attention_merge, merge_rows).
//
//   thread t        pieces of key t: cache --> registers, with q of all heads --> scores --> p
//   shared memory   q [kHeads][head_dim] | rows of values, which arrive while keys are scored | maxima, p [256][kHeads]
//   then a thread   two columns of all heads: p with the rows of values --> registers --> the segment's part
#include <algorithm>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/cache_pages.cuh"
#include "backend/cuda/attention/cache_pieces.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "backend/cuda/tiles/mma_steps.cuh"
#include "num/math.h"

namespace assay::backend::cuda {
namespace {

using ops::CacheType;
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kSegment = static_cast<int>(ops::kAttentionSegment);
static_assert(kSegment == kThreads);
constexpr int64_t kStagedBytes = 32 * 1024;  // of values at a time
constexpr int kPiecesAhead = 8;              // of the thread's key, on their way together

template <int kHeads>
struct Shared {
  float maxima[kWarps][kHeads];
  alignas(16) float p[kSegment][kHeads];
};

// Chains of the thread's key, that of a lane of a tile, with the block's queries, q [kHeads][head_dim].
template <CacheType type, int kHeads>
__device__ void score_key(const CacheView& cache, const std::byte* tile, int lane, const float* q,
                          float (&score)[kHeads]) {
  using P = Piece<type>;
  const int n_pieces = static_cast<int>(cache.n_pieces), head_dim = static_cast<int>(cache.head_dim);
  const auto* pieces = reinterpret_cast<const uint4*>(tile) + lane;
  const auto* scales = reinterpret_cast<const __half*>(tile + n_pieces * kKeyTile * kPieceBytes) + lane;
  for (int begin = 0; begin < n_pieces; begin += kPiecesAhead) {
    uint4 bytes[kPiecesAhead];
#pragma unroll
    for (int i = 0; i < kPiecesAhead; ++i)
      bytes[i] = begin + i < n_pieces ? __ldcg(pieces + (begin + i) * kKeyTile) : uint4{};
#pragma unroll
    for (int i = 0; i < kPiecesAhead; ++i) {
      if (begin + i >= n_pieces) break;
      float key[P::kElements];
      P::widen(bytes[i], type == CacheType::q8_0 ? __half2float(scales[(begin + i) / 2 * kKeyTile]) : 0.0f, key);
      add_products<kHeads>(key, q + (begin + i) * P::kElements, head_dim, score);
    }
  }
}

// p of the thread's key and the segment's m, for all threads.
template <int kHeads>
__device__ void weigh(const float (&score)[kHeads], bool visible, Shared<kHeads>& s, float (&m)[kHeads]) {
  const int t = static_cast<int>(threadIdx.x);
  const float lowest = __uint_as_float(0xFF800000u);
#pragma unroll
  for (int g = 0; g < kHeads; ++g) {
    float top = visible && score[g] > lowest ? score[g] : lowest;
#pragma unroll
    for (int width = 16; width >= 1; width /= 2) {
      const float other = __shfl_xor_sync(kWholeWarp, top, width);
      top = other > top ? other : top;
    }
    if (t % 32 == 0) s.maxima[t / 32][g] = top;
  }
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kHeads; ++g) {
    m[g] = s.maxima[0][g];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) m[g] = s.maxima[w][g] > m[g] ? s.maxima[w][g] : m[g];
    s.p[t][g] = num::exp(score[g] - m[g]);
  }
}

// Two columns of all heads' outputs.
template <CacheType type, int kHeads>
struct Outputs {
  float sum[kHeads][2] = {};
  __device__ void add(const std::byte* rows, int row_bytes, int head_dim, int begin, int end, const float (*p)[kHeads],
                      int j) {
#pragma unroll 8
    for (int key = begin; key < end; ++key) {
      float v[2], w[kHeads];
      columns_of<type, 2>(rows + (key - begin) * row_bytes, head_dim, j, v);
      if constexpr (kHeads == 4) {
        const float4 four = *reinterpret_cast<const float4*>(p[key]);
        w[0] = four.x, w[1] = four.y, w[2] = four.z, w[3] = four.w;
      } else {
#pragma unroll
        for (int g = 0; g < kHeads; ++g) w[g] = p[key][g];
      }
#pragma unroll
      for (int g = 0; g < kHeads; ++g) {
        sum[g][0] = num::fma(w[g], v[0], sum[g][0]);
        sum[g][1] = num::fma(w[g], v[1], sum[g][1]);
      }
    }
  }
};

// grid: groups of heads, segments, queries.
template <CacheType type_k, CacheType type_v, int kHeads>
__global__ void __launch_bounds__(kThreads, 3) batch_attention_kernel(const __grid_constant__ AttentionTask task) {
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ Shared<kHeads> s;
  let_next_start();
  const CacheView& cache = task.cache;
  const PageTable table = table_of_tile(cache, blockIdx.z);
  std::byte* page = page_of(
      table, blockIdx.y * kSegmentPages + threadIdx.x / kCachePage);  // of the thread's key where there is no window
  const TokenTile tile = task.tiles[blockIdx.z];
  const int64_t position = tile.position, first_key = ops::first_visible(position, task.window),
                i_segment = first_key / kSegment + blockIdx.y;
  if (i_segment > position / kSegment) return;
  const int64_t segment = i_segment * kSegment;
  const int t = static_cast<int>(threadIdx.x), head_dim = static_cast<int>(cache.head_dim),
            row_bytes = static_cast<int>(cache.v_row_bytes);
  const int begin = static_cast<int>(max(first_key - segment, int64_t{0})),
            end = static_cast<int>(min(position + 1 - segment, int64_t{kSegment}));
  const int first_head = static_cast<int>(blockIdx.x) * kHeads,
            per_key = static_cast<int>(task.n_heads / cache.n_kv_heads);
  const int64_t kv_head = first_head / per_key, v_at = cache.v + kv_head * cache.v_head_bytes;
  if (i_segment != blockIdx.y) page = page_of(table, i_segment * kSegmentPages + t / kCachePage);
  const std::byte* keys =
      page + cache.k + kv_head * cache.k_head_bytes + t / kKeyTile % kPageTiles * cache.k_tile_bytes;
  auto* q = reinterpret_cast<float*>(memory);
  std::byte* staged = memory + kHeads * head_dim * static_cast<int>(sizeof(float));
  wait_for_previous();
  fetch_rows<kThreads>(SegmentPages(table, i_segment), v_at, row_bytes, begin, min(begin + task.tile_keys, end),
                       staged);
  for (int i = t; i < kHeads * head_dim; i += kThreads)
    q[i] = task.q[(int64_t{tile.token} * task.n_heads + first_head) * head_dim + i];
  __syncthreads();
  const bool visible = t >= begin && t < end;
  float score[kHeads] = {}, m[kHeads];
  if (visible) score_key<type_k, kHeads>(cache, keys, t % kKeyTile, q, score);
#pragma unroll
  for (int g = 0; g < kHeads; ++g) score[g] = score[g] * task.scale;
  weigh<kHeads>(score, visible, s, m);
  wait_copies<0>();
  __syncthreads();

  float* out = task.partials +
               ((int64_t{blockIdx.z} * task.n_heads + first_head) * task.n_segments + blockIdx.y) * (head_dim + 2);
  const int64_t head_stride = task.n_segments * (head_dim + 2);
  if (const int g = t / 32 - (kWarps - kHeads);
      g >= 0) {  // Lanes32 over the keys, by warps that have the fewest columns
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const int key = 32 * w + t % 32;
      if (key >= begin && key < end) sum = sum + s.p[key][g];
    }
    sum = fold_lanes(sum);
    if (t % 32 == 0) {
      float of_head = m[0];
#pragma unroll
      for (int i = 1; i < kHeads; ++i) of_head = g == i ? m[i] : of_head;
      out[g * head_stride] = of_head, out[g * head_stride + 1] = sum;
    }
  }
  Outputs<type_v, kHeads> o;  // head_dim / 2 columns, at most kThreads
  for (int from = begin; from < end; from += task.tile_keys) {
    const int to = min(from + task.tile_keys, end);
    if (from > begin) {
      __syncthreads();
      fetch_rows<kThreads>(SegmentPages(table, i_segment), v_at, row_bytes, from, to, staged);
      wait_copies<0>();
      __syncthreads();
    }
    if (2 * t < head_dim) o.add(staged, row_bytes, head_dim, from, to, s.p, 2 * t);
  }
  if (2 * t >= head_dim) return;
#pragma unroll
  for (int g = 0; g < kHeads; ++g)
    out[g * head_stride + 2 + 2 * t] = o.sum[g][0], out[g * head_stride + 3 + 2 * t] = o.sum[g][1];
}

template <CacheType type_k, CacheType type_v, int kHeads>
void start(AttentionTask task, const Queue& queue) {
  static_assert(kHeadDimMax <= 2 * kThreads);
  task.tile_keys = static_cast<int32_t>(std::min(kStagedBytes / task.cache.v_row_bytes, int64_t{kSegment}));
  const auto bytes = static_cast<size_t>(kHeads * task.cache.head_dim) * sizeof(float) +
                     static_cast<size_t>(task.tile_keys * task.cache.v_row_bytes);
  const auto kernel = batch_attention_kernel<type_k, type_v, kHeads>;
  constexpr size_t kWithoutAsking = 48 * 1024 - sizeof(Shared<kHeads>);
  if (bytes > kWithoutAsking)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  const dim3 grid(static_cast<unsigned>(task.n_heads / kHeads), static_cast<unsigned>(task.n_segments),
                  static_cast<unsigned>(task.n_tiles));
  launch(queue, kernel, grid, kThreads, bytes, task);
}

template <CacheType type_k, CacheType type_v>
void start(const AttentionTask& task, const Queue& queue) {
  const int64_t per_key = task.n_heads / task.cache.n_kv_heads;
  if (per_key % 4 == 0) return start<type_k, type_v, 4>(task, queue);
  if (per_key % 2 == 0) return start<type_k, type_v, 2>(task, queue);
  start<type_k, type_v, 1>(task, queue);
}

template <CacheType type_k>
void start_k(const AttentionTask& task, const Queue& queue) {
  if (task.cache.type_v == CacheType::f32) start<type_k, CacheType::f32>(task, queue);
  if (task.cache.type_v == CacheType::f16) start<type_k, CacheType::f16>(task, queue);
  if (task.cache.type_v == CacheType::q8_0) start<type_k, CacheType::q8_0>(task, queue);
}

}  // namespace

void attention_alone(const AttentionTask& task, const Queue& queue) {
  if (task.cache.type_k == CacheType::f32) start_k<CacheType::f32>(task, queue);
  if (task.cache.type_k == CacheType::f16) start_k<CacheType::f16>(task, queue);
  if (task.cache.type_k == CacheType::q8_0) start_k<CacheType::q8_0>(task, queue);
}

}  // namespace assay::backend::cuda
