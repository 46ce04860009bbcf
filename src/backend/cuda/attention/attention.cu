// See attention.h. A block of 256 threads takes one head of a tile of queries and a segment of 256 keys: thread t
// scores key t against all queries, then the threads take columns of the values. Every chain and fold is the
// contract's.
#include <algorithm>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/cache_pages.cuh"
#include "backend/cuda/attention/cache_pieces.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/math.h"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

using ops::CacheType;
constexpr int kThreads = 256;
constexpr int kSegment = static_cast<int>(ops::kAttentionSegment);
static_assert(kSegment == kThreads);

// Floats before the staged values, which begin at a multiple of 16 bytes.
__host__ __device__ constexpr int64_t shared_floats(int64_t head_dim, int64_t queries) {
  return ((2 * head_dim + kSegment) * queries + 3) / 4 * 4;
}
constexpr int64_t kStagedBytes = 32 * 1024;

// What a block of threads shares; the arrays of floats lie behind it.
template <int kQueries>
struct Shared {
  float maxima[8][kQueries];               // of the warps
  float m[kQueries], l[kQueries];          // of the segment
  float m_run[kQueries], l_run[kQueries];  // of the segments so far
  float a[kQueries], b[kQueries];          // factors of the merge
  int started[kQueries];
  int begin[kQueries], end[kQueries];  // keys of the segment that the query sees, counted from its first
};

// Scores of the thread's key with all queries, into p; nothing where no query sees it.
template <CacheType type, int kQueries>
__device__ void score_key(const CacheView& cache, const std::byte* tile, int lane, const float* q, float scale,
                          float (&score)[kQueries]) {
  using P = Piece<type>;
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

// l of the segment (a warp a query at a time), and what it means for the segments so far.
template <int kQueries>
__device__ void sum_and_merge(const float* p, Shared<kQueries>& s) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < kQueries; i += kThreads / 32) {
    if (s.begin[i] >= s.end[i]) continue;
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

__device__ void wait_for_values() { asm volatile("cp.async.wait_all;" : : : "memory"); }

// Adds keys key .. tile_end of the segment to column j of kGroup queries' outputs; rows: of key `tile_begin` on.
template <CacheType type, int kQueries, int kGroup>
__device__ void add_values(const std::byte* rows, int64_t row_bytes, int64_t head_dim, int tile_begin, int tile_end,
                           const float* p, int first, int64_t j, const Shared<kQueries>& s, float (&sum)[kGroup]) {
  int begin = kSegment, end = 0, all_begin = 0, all_end = tile_end;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    begin = min(begin, s.begin[first + i]), end = max(end, s.end[first + i]);
    all_begin = max(all_begin, s.begin[first + i]), all_end = min(all_end, s.end[first + i]);
  }
  end = min(end, tile_end);
  const auto step = [&](int key, bool all) {
    const float value = value_at<type>(rows + (key - tile_begin) * row_bytes, head_dim, j);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (all || (key >= s.begin[first + i] && key < s.end[first + i]))
        sum[i] = num::fma(p[key * kQueries + first + i], value, sum[i]);
    }
  };
  int key = max(begin, tile_begin);
  for (; key < min(all_begin, end); ++key) step(key, false);
#pragma unroll 8
  for (; key < all_end; ++key) step(key, true);
  for (; key < end; ++key) step(key, false);
}

// A head's values in a segment.
struct Values {
  PageTable table;
  int64_t segment, at;  // at: in a page
  int row_bytes;
  __device__ void fetch(int begin, int end, std::byte* staged) const {
    fetch_rows<kThreads>(SegmentPages(table, segment), at, row_bytes, begin, end, staged);
  }
};

// The outputs of the segment's keys begin .. end, merged into o. The first tile of values is on its way already.
template <CacheType type, int kQueries>
__device__ void run_values(const CacheView& cache, const Values& values, int begin, int end, int tile_keys,
                           std::byte* staged, const float* p, const Shared<kQueries>& s, float* o) {
  constexpr int kGroup = kQueries < 4 ? kQueries : 4;
  constexpr int kItems = static_cast<int>(kHeadDimMax) * (kQueries / kGroup) / kThreads;  // columns of a thread
  const int head_dim = static_cast<int>(cache.head_dim), n_items = head_dim * (kQueries / kGroup);
  float sum[kItems][kGroup] = {};
  for (int tile = begin; tile < end; tile += tile_keys) {
    const int tile_end = min(tile + tile_keys, end);
    if (tile > begin) {
      __syncthreads();
      values.fetch(tile, tile_end, staged);
    }
    wait_for_values();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int item = static_cast<int>(threadIdx.x) + i * kThreads;
      if (item < n_items) {
        add_values<type, kQueries, kGroup>(staged, cache.v_row_bytes, head_dim, tile, tile_end, p,
                                           item / head_dim * kGroup, item % head_dim, s, sum[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * kThreads;
    if (item >= n_items) continue;
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      const int query = item / head_dim * kGroup + g;
      float& place = o[query * head_dim + item % head_dim];
      if (s.begin[query] < s.end[query])
        place = s.started[query] ? num::fma(place, s.a[query], sum[i][g] * s.b[query]) : sum[i][g];
    }
  }
}

// One segment for the tile's queries.
template <CacheType type_k, CacheType type_v, int kQueries>
__device__ void run_segment(const AttentionTask& task, const TokenTile& tile, int64_t kv_head, int64_t i_segment,
                            const float* q, float* p, float* o, std::byte* staged, Shared<kQueries>& s) {
  const CacheView& cache = task.cache;
  const int t = static_cast<int>(threadIdx.x);
  const int64_t segment = i_segment * kSegment;
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
  const PageTable table = table_of(cache, tile.sequence);
  const Values values{table, i_segment, cache.v + kv_head * cache.v_head_bytes, static_cast<int>(cache.v_row_bytes)};
  values.fetch(begin, min(begin + task.tile_keys, end), staged);
  float score[kQueries] = {};
  if (t >= begin && t < end) {
    score_key<type_k>(cache, key_tile(cache, table, kv_head, (segment + t) / kKeyTile), t % kKeyTile, q, task.scale,
                      score);
  }
  find_maxima(score, s);
#pragma unroll
  for (int i = 0; i < kQueries; ++i) p[t * kQueries + i] = num::exp(score[i] - s.m[i]);
  __syncthreads();
  sum_and_merge(p, s);
  __syncthreads();
  run_values<type_v, kQueries>(cache, values, begin, end, task.tile_keys, staged, p, s, o);
  __syncthreads();
  if (t < kQueries && s.begin[t] < s.end[t]) s.started[t] = 1;
  __syncthreads();
}

// grid: tiles, heads, and with kSplit the segments.
template <CacheType type_k, CacheType type_v, int kQueries, bool kSplit>
__global__ void attention_kernel(AttentionTask task) {
  extern __shared__ __align__(16) float memory[];
  __shared__ Shared<kQueries> s;
  let_next_start();
  wait_for_previous();
  const int64_t head_dim = task.cache.head_dim, head = blockIdx.y;
  float* q = memory;                   // [head_dim][kQueries]
  float* p = q + head_dim * kQueries;  // [kSegment][kQueries]
  float* o = p + kSegment * kQueries;  // [kQueries][head_dim]
  auto* staged = reinterpret_cast<std::byte*>(memory + shared_floats(head_dim, kQueries));
  const TokenTile tile = task.tiles[blockIdx.x];
  const int64_t first = ops::first_visible(tile.position, task.window) / kSegment,
                last = (tile.position + tile.n - 1) / kSegment;
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
  for (int64_t i = begin; i < end; ++i)
    run_segment<type_k, type_v, kQueries>(task, tile, kv_head, i, q, p, o, staged, s);
  if constexpr (kSplit) {
    float* out =
        task.partials + ((int64_t{blockIdx.x} * task.n_heads + head) * task.n_segments + blockIdx.z) * (head_dim + 2);
    if (t == 0) out[0] = s.m_run[0], out[1] = s.l_run[0];
    for (int64_t j = t; j < head_dim; j += kThreads) out[2 + j] = o[j];
  } else {
    for (int64_t i = t; i < head_dim * tile.n; i += kThreads) {
      const int64_t query = i / head_dim;
      task.y[((tile.token + query) * task.n_heads + head) * head_dim + i % head_dim] = o[i] / s.l_run[query];
    }
  }
}

constexpr int kMergeThreads = 128;  // segments whose factors are made at a time

// The factors of the merge of the thread's segment, which comes after `m` and those of the threads before it; m: then
// of them all.
__device__ void merge_factors(float own, bool inside, float& m, float& a, float& b) {
  __shared__ float of_warps[kMergeThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float top = inside ? own : __uint_as_float(0xFF800000u);
#pragma unroll
  for (int width = 1; width < 32; width *= 2) {
    const float other = __shfl_up_sync(kWholeWarp, top, width);
    if (lane >= width && other > top) top = other;
  }
  if (lane == 31) of_warps[warp] = top;
  __syncthreads();
  float before = m;
#pragma unroll
  for (int w = 0; w < kMergeThreads / 32; ++w) {
    if (w < warp && of_warps[w] > before) before = of_warps[w];
    if (of_warps[w] > m) m = of_warps[w];
  }
  top = top > before ? top : before;
  const float up = __shfl_up_sync(kWholeWarp, top, 1);
  if (lane > 0) before = up;
  a = num::exp(before - top);
  b = num::exp(own - top);
}

// The segments of one head of one query, ascending. grid: tiles, heads.
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(AttentionTask task) {
  __shared__ float2 factors[kMergeThreads];
  let_next_start();
  wait_for_previous();
  const TokenTile tile = task.tiles[blockIdx.x];
  const int64_t head_dim = task.cache.head_dim, head = blockIdx.y, stride = head_dim + 2;
  const auto n =
      static_cast<int>(tile.position / kSegment - ops::first_visible(tile.position, task.window) / kSegment + 1);
  const float* partials = task.partials + (int64_t{blockIdx.x} * task.n_heads + head) * task.n_segments * stride;
  constexpr int kItems = static_cast<int>(kHeadDimMax) / kMergeThreads;
  float m = partials[0], l = partials[1], o[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int j = static_cast<int>(threadIdx.x) + i * kMergeThreads;
    o[i] = j < head_dim ? partials[2 + j] : 0.0f;
  }
  for (int begin = 1; begin < n; begin += kMergeThreads) {
    const int n_now = min(n - begin, kMergeThreads), t = static_cast<int>(threadIdx.x);
    const float* now = partials + begin * stride;
    float2 f;
    merge_factors(t < n_now ? now[t * stride] : 0.0f, t < n_now, m, f.x, f.y);
    factors[t] = f;
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < n_now; ++k) l = num::fma(l, factors[k].x, now[k * stride + 1] * factors[k].y);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int j = t + i * kMergeThreads;
      if (j >= head_dim) break;
#pragma unroll 16
      for (int k = 0; k < n_now; ++k) o[i] = num::fma(o[i], factors[k].x, now[k * stride + 2 + j] * factors[k].y);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int j = static_cast<int>(threadIdx.x) + i * kMergeThreads;
    if (j < head_dim) task.y[(tile.token * task.n_heads + head) * head_dim + j] = o[i] / l;
  }
}

template <CacheType type_k, CacheType type_v, int kQueries, bool kSplit>
void start(AttentionTask task, const Queue& queue) {
  task.tile_keys = static_cast<int32_t>(std::min(kStagedBytes / task.cache.v_row_bytes, int64_t{kSegment}));
  const auto bytes = static_cast<size_t>(shared_floats(task.cache.head_dim, kQueries)) * sizeof(float) +
                     static_cast<size_t>(task.tile_keys * task.cache.v_row_bytes);
  const auto kernel = attention_kernel<type_k, type_v, kQueries, kSplit>;
  constexpr size_t kWithoutAsking = 48 * 1024 - sizeof(Shared<kQueries>);
  if (bytes > kWithoutAsking)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  const dim3 grid(static_cast<unsigned>(task.n_tiles), static_cast<unsigned>(task.n_heads),
                  kSplit ? static_cast<unsigned>(task.n_segments) : 1);
  launch(queue, kernel, grid, kThreads, bytes, task);
}

template <CacheType type_k, CacheType type_v>
void start(const AttentionTask& task, bool split, const Queue& queue) {
  split ? start<type_k, type_v, 1, true>(task, queue) : start<type_k, type_v, kTileTokens, false>(task, queue);
}

template <CacheType type_k>
void start_k(const AttentionTask& task, bool split, const Queue& queue) {
  if (task.cache.type_v == CacheType::f32) start<type_k, CacheType::f32>(task, split, queue);
  if (task.cache.type_v == CacheType::f16) start<type_k, CacheType::f16>(task, split, queue);
  if (task.cache.type_v == CacheType::q8_0) start<type_k, CacheType::q8_0>(task, split, queue);
}

void start_any(const AttentionTask& task, bool split, const Queue& queue) {
  if (task.cache.type_k == CacheType::f32) start_k<CacheType::f32>(task, split, queue);
  if (task.cache.type_k == CacheType::f16) start_k<CacheType::f16>(task, split, queue);
  if (task.cache.type_k == CacheType::q8_0) start_k<CacheType::q8_0>(task, split, queue);
}

}  // namespace

void attention_tiles(const AttentionTask& task, const Queue& queue) { start_any(task, false, queue); }
void attention_split(const AttentionTask& task, const Queue& queue) { start_any(task, true, queue); }
void attention_merge(const AttentionTask& task, const Queue& queue) {
  if (task.n_tiles == 0) return;
  launch(queue, merge_kernel, dim3(static_cast<unsigned>(task.n_tiles), static_cast<unsigned>(task.n_heads)),
         kMergeThreads, 0, task);
}

}  // namespace assay::backend::cuda
