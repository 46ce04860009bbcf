// See fast_attention.h. A block of 4 warps takes up to 16 tokens of 4 heads that share their keys: 64 queries, 16 of
// them a warp. Keys come 64 at a time, aligned to absolute positions. Within a segment of 256 positions the largest
// score so far, the sum and the outputs are carried along; segments begin anew and merge as in mode exact, by the same
// formula, so that they can also be worked on side by side.
//
// A score: 16 elements of the head by one instruction, ascending. exp: the device's approximation of powers of two.
// Probabilities are rounded to half precision before they are summed and multiplied; their sum: of a lane's 16
// ascending, then its neighbours 1 and 2 away. Outputs: 16 keys by one instruction, ascending. A key that a query does
// not see has probability 0, and one that is not there is zeros.
//
// Decode of one token runs the same on up to 16 heads' one query, makes the heads itself and puts the new key and value
// where they belong.
#include <algorithm>

#include "backend/cuda/attention/fast_attention.h"
#include "backend/cuda/attention/heads.cuh"
#include "backend/cuda/decode/fast_decode.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "backend/cuda/tiles/fast_types.cuh"
#include "num/lanes.h"
#include "num/math.h"
#include "ops/attention/attention.h"

namespace assay::backend::cuda {
namespace {

constexpr int kWarpQueries = 16;
constexpr int kKeys = 64;  // at a time
constexpr int kSegment = static_cast<int>(ops::kAttentionSegment);
static_assert(kSegment % kKeys == 0 && kKeys % kKeyTile == 0);

__device__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// How a block is cut: query u is head u % kHeads of token u / kHeads.
struct ManyTokens {
  static constexpr int kHeads = 4, kQueries = kTileTokens * kHeads, kWarps = 4, kThreads = 32 * kWarps;
};
// The queries of one warp; the other helps with copies and heads. More warps would take registers from other blocks.
struct OneToken {
  static constexpr int kHeads = 16, kQueries = kWarpQueries, kWarps = 2, kThreads = 32 * kWarps;
};

template <int kHeadDim, class Cut>
class FastAttention {
 public:
  static constexpr int kHeads = Cut::kHeads, kQueries = Cut::kQueries, kThreads = Cut::kThreads;
  static constexpr int kPitch =
      kHeadDim + 8;  // halves of a row of queries or values: no two of 8 rows in the same banks
  static constexpr int kPieces = kHeadDim / 8, kColumnTiles = kHeadDim / 8, kKeyTiles = kKeys / 8;
  struct Shared {
    __half q[kQueries][kPitch];
    __half v[2][kKeys][kPitch];
    uint4 k[2][kKeys / kKeyTile][kPieces][kKeyTile];
  };

  // n_cached: of the keys of the sequence, those that the cache holds.
  __device__ FastAttention(const AttentionTask& task, const TokenTile& tile, PageTable table, int n_cached,
                           int64_t kv_head, int64_t head_0, int64_t head_end, Shared& shared)
      : task_(task), tile_(tile), s_(shared), head_0_(head_0), head_end_(head_end),
        warp_(static_cast<int>(threadIdx.x) / 32), lane_(static_cast<int>(threadIdx.x) % 32) {
    table_ = table;
    k_at_ = task.cache.k + kv_head * task.cache.k_head_bytes;
    v_at_ = task.cache.v + kv_head * task.cache.v_head_bytes;
    limit_ = n_cached;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int u = query(half);
      is_query_[half] = u / kHeads < tile.n && head_0 + u % kHeads < head_end;
      end_[half] = tile.position + u / kHeads + 1;
      begin_[half] = static_cast<int>(ops::first_visible(end_[half] - 1, task.window));
    }
  }

  // Keys of the groups of 64 from first to last; calls make_queries() while the first are under way, complete(k, v) for
  // the keys and values of the last, end_segment(half) for a lane's queries where they have seen keys of a segment.
  template <class Make, class Complete, class End>
  __device__ void run(int first, int last, Make make_queries, Complete complete, End end_segment) {
    fetch_keys(first, 0);
    make_queries();
    clear();
    for (int group = first; group <= last; ++group) {
      const int side = (group - first) % 2;
      if (group < last) {
        fetch_keys(group + 1, side ^ 1);
        wait_copies<1>();
      } else {
        wait_copies<0>();
      }
      __syncthreads();
      if (group == last) complete(s_.k[side], s_.v[side]);
      if (warp_ * kWarpQueries / kHeads < tile_.n) take_group(group * kKeys, side);
      if (group == last || (group + 1) * kKeys % kSegment == 0) {
        const int segment = group * kKeys / kSegment * kSegment;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (is_query_[half] && begin_[half] < segment + kSegment && end_[half] > segment) end_segment(half);
        }
        clear();
      }
      __syncthreads();
    }
  }

  // The segment is all of it, or joins those before.
  __device__ void join_segment(int half, bool started) {
    const float m_both = m_[half] > m_run_[half] ? m_[half] : m_run_[half];
    const float a = num::exp(m_run_[half] - m_both), b = num::exp(m_[half] - m_both);
    l_run_[half] = started ? num::fma(l_run_[half], a, l_[half] * b) : l_[half];
    m_run_[half] = started ? m_both : m_[half];
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e)
        run_[c][e] = started ? num::fma(run_[c][e], a, o_[c][e] * b) : o_[c][e];
    }
  }
  __device__ void write_whole() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (is_query_[half]) write_row(half, run_, l_run_[half]);
    }
  }
  // The segment is all of it.
  __device__ void write_alone(int half) const { write_row(half, o_, l_[half]); }
  __device__ void write_partial(int half, int64_t i_tile, int segment) const {
    const int64_t head = head_0_ + query(half) % kHeads;
    float* partial = task_.partials + ((i_tile * task_.n_heads + head) * task_.n_segments + segment) * (kHeadDim + 2);
    if (lane_ % 4 == 0) partial[0] = m_[half], partial[1] = l_[half];
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      partial[2 + 8 * c + lane_ % 4 * 2] = o_[c][2 * half];
      partial[3 + 8 * c + lane_ % 4 * 2] = o_[c][2 * half + 1];
    }
  }

  __device__ void load_queries() {
    for (int i = static_cast<int>(threadIdx.x); i < kQueries * kHeadDim / 2; i += kThreads) {
      const int u = i / (kHeadDim / 2), j = i % (kHeadDim / 2) * 2;
      const int64_t head = head_0_ + u % kHeads;
      float2 q = {0.0f, 0.0f};
      if (u / kHeads < tile_.n && head < head_end_) {
        q = *reinterpret_cast<const float2*>(task_.q + ((tile_.token + u / kHeads) * task_.n_heads + head) * kHeadDim +
                                             j);
      }
      *reinterpret_cast<uint32_t*>(&s_.q[u][j]) = FastF16::rounded(q.x, q.y);
    }
  }

 private:
  __device__ void write_row(int half, const float (&o)[kColumnTiles][4], float l) const {
    const int u = query(half);
    float* y = task_.y + ((tile_.token + u / kHeads) * task_.n_heads + head_0_ + u % kHeads) * kHeadDim + lane_ % 4 * 2;
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c)
      *reinterpret_cast<float2*>(y + 8 * c) = {o[c][2 * half] / l, o[c][2 * half + 1] / l};
  }
  __device__ int query(int half) const { return warp_ * kWarpQueries + lane_ / 4 + 8 * half; }

  __device__ void fetch_keys(int group, int side) {
    static_assert(kKeys == kCachePage);
    const int first = group * kKeys;
    const std::byte* page = page_of(table_, group);
    const auto* k = reinterpret_cast<const uint4*>(page + k_at_);
    const std::byte* v = page + v_at_;
    const uint32_t k_to = shared_address(s_.k[side]);
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * kPieces; i += kThreads) {
      const int key_of_piece = i / (kPieces * kKeyTile) * kKeyTile + i % kKeyTile, key = i / kPieces;
      const bool k_there = first + key_of_piece < limit_, v_there = first + key < limit_;
      copy_16(k_to + static_cast<uint32_t>(i) * 16, k_there ? k + i : k, k_there);
      copy_16(shared_address(&s_.v[side][key][i % kPieces * 8]),
              v_there ? v + key * task_.cache.v_row_bytes + i % kPieces * 16 : v, v_there);
    }
    end_copies();
  }
  __device__ void clear() {
    m_[0] = m_[1] = __uint_as_float(0xFF800000u);
    l_[0] = l_[1] = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o_[c][e] = 0.0f;
    }
  }

  __device__ void score(int side, float (&p)[kKeyTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) p[n][e] = 0.0f;
    }
#pragma unroll
    for (int two = 0; two < kHeadDim / 32; ++two) {  // steps of 16 elements of the head
      uint32_t q[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_matrices(shared_address(&s_.q[warp_ * kWarpQueries + lane_ % 16][(2 * two + i) * 16 + lane_ / 16 * 8]),
                      q[i]);
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        uint32_t k[4];
        load_matrices(shared_address(&s_.k[side][n / 4][4 * two + lane_ / 8][n % 4 * 8 + lane_ % 8]), k);
        add_halves(q[0], k[0], k[1], p[n]);
        add_halves(q[1], k[2], k[3], p[n]);
      }
    }
  }

  __device__ void take_group(int first, int side) {
    float p[kKeyTiles][4];
    score(side, p);
    float m_new[2] = {m_[0], m_[1]};
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2, key = first + 8 * n + lane_ % 4 * 2 + e % 2;
        p[n][e] = p[n][e] * task_.scale;
        if (sees(half, key) && p[n][e] > m_new[half]) m_new[half] = p[n][e];
      }
    }
    float sum[2] = {0.0f, 0.0f}, factor[2];
    constexpr float kLog2E = 1.44269504f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int width = 1; width <= 2; width *= 2) {
        const float other = __shfl_xor_sync(kWholeWarp, m_new[half], width);
        m_new[half] = other > m_new[half] ? other : m_new[half];
      }
      const float m = m_new[half] == __uint_as_float(0xFF800000u) ? 0.0f : m_new[half];  // no key yet: everything is 0
      factor[half] = power_of_two((m_[half] - m) * kLog2E);
      m_[half] = m_new[half];
      m_new[half] = m;
    }
    uint32_t rounded[kKeyTiles][2];
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = first + 8 * n + lane_ % 4 * 2;
        const float a = sees(half, key) ? power_of_two((p[n][2 * half] - m_new[half]) * kLog2E) : 0.0f;
        const float b = sees(half, key + 1) ? power_of_two((p[n][2 * half + 1] - m_new[half]) * kLog2E) : 0.0f;
        rounded[n][half] = FastF16::rounded(a, b);
        const float2 back = __half22float2(*reinterpret_cast<const __half2*>(&rounded[n][half]));
        sum[half] = (sum[half] + back.x) + back.y;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int width = 1; width <= 2; width *= 2) sum[half] = sum[half] + __shfl_xor_sync(kWholeWarp, sum[half], width);
      l_[half] = num::fma(l_[half], factor[half], sum[half]);
    }
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o_[c][e] = o_[c][e] * factor[e / 2];
    }
    add_values(side, rounded);
  }
  __device__ void add_values(int side, const uint32_t (&rounded)[kKeyTiles][2]) {
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const uint32_t p[4] = {rounded[2 * step][0], rounded[2 * step][1], rounded[2 * step + 1][0],
                             rounded[2 * step + 1][1]};
#pragma unroll
      for (int c = 0; c < kColumnTiles; c += 2) {
        uint32_t v[4];
        load_transposed(shared_address(&s_.v[side][16 * step + lane_ % 16][8 * c + lane_ / 16 * 8]), v);
        add_halves(p, v[0], v[1], o_[c]);
        add_halves(p, v[2], v[3], o_[c + 1]);
      }
    }
  }
  __device__ bool sees(int half, int key) const { return key >= begin_[half] && key < end_[half]; }

  const AttentionTask& task_;
  const TokenTile tile_;
  Shared& s_;
  const int64_t head_0_, head_end_;
  const int warp_, lane_;
  PageTable table_;
  int64_t k_at_, v_at_;    // of the head in a page
  int limit_;              // keys from here on are not there
  bool is_query_[2];       // of the lane's two queries, 8 rows apart
  int begin_[2], end_[2];  // keys that they see
  float m_[2], l_[2], m_run_[2], l_run_[2];
  float o_[kColumnTiles][4], run_[kColumnTiles][4];  // of the segment; of those joined
};

// grid: groups of 4 heads of every KV head; tiles, the longest first; where they are split: segments.
template <int kHeadDim, bool kSplit>
__global__ void __launch_bounds__(ManyTokens::kThreads)
    fast_attention_kernel(const __grid_constant__ AttentionTask task, int n_groups) {
  using Attention = FastAttention<kHeadDim, ManyTokens>;
  extern __shared__ __align__(128) std::byte memory[];
  let_next_start();
  wait_for_previous();
  const int64_t i_tile = gridDim.y - 1 - blockIdx.y;
  const TokenTile tile = task.tiles[i_tile];
  const int64_t per_kv_head = task.n_heads / task.cache.n_kv_heads, kv_head = blockIdx.x / n_groups;
  const int64_t head_0 = kv_head * per_kv_head + blockIdx.x % n_groups * ManyTokens::kHeads;
  Attention attention(task, tile, kSplit ? table_of_tile(task.cache, i_tile) : table_of(task.cache, tile.sequence),
                      tile.position + tile.n, kv_head, head_0, (kv_head + 1) * per_kv_head,
                      *reinterpret_cast<typename Attention::Shared*>(memory));
  const auto load_queries = [&] { attention.load_queries(); };
  const auto is_complete = [](auto&, auto&) {};
  int first = static_cast<int>(ops::first_visible(tile.position, task.window)) / kKeys,
      last = (tile.position + tile.n - 1) / kKeys;
  if constexpr (kSplit) {
    const int segment = first * kKeys / kSegment + static_cast<int>(blockIdx.z);
    first = max(first, segment * (kSegment / kKeys));
    last = min(last, (segment + 1) * (kSegment / kKeys) - 1);
    if (first > last) return;
    attention.run(first, last, load_queries, is_complete,
                  [&](int half) { attention.write_partial(half, i_tile, static_cast<int>(blockIdx.z)); });
  } else {
    bool started[2] = {false, false};
    attention.run(first, last, load_queries, is_complete, [&](int half) {
      attention.join_segment(half, started[half]);
      started[half] = true;
    });
    attention.write_whole();
  }
}

// What decode's blocks share beside attention's: the rows of the heads, their rotations, and the new key and value as
// the cache has them.
template <int kHeadDim>
struct DecodeShared {
  typename FastAttention<kHeadDim, OneToken>::Shared attention;
  float row[OneToken::kHeads + 2][kHeadDim], angles[kHeadDim];
  __half key[kHeadDim], value[kHeadDim];
};

// The heads of the block's queries, rounded; where `holds_new` the new key and value too, which the block with the
// first heads puts into the cache. angles: in the block's memory.
template <int kHeadDim>
__device__ void make_heads(const HeadsTask& task, int64_t kv_head, int64_t head_0, int64_t head_end, bool holds_new,
                           DecodeShared<kHeadDim>& s) {
  const CacheView& cache = task.cache;
  const int64_t position = task.positions[0];
  std::byte* page = page_of(table_of_tile(cache, 0), position / kCachePage);
  const bool stores = holds_new && head_0 % (task.n_heads / cache.n_kv_heads) == 0, writes = blockIdx.y == 0;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto n_heads = static_cast<int>(min(head_end - head_0, int64_t{OneToken::kHeads})),
             n_rows = n_heads + (holds_new ? 2 : 0);
  const auto place_of = [&](int i) { return (i < n_heads ? head_0 + i : kv_head) * kHeadDim; };
  // All rows are on their way before the first is worked on.
  for (int j = static_cast<int>(threadIdx.x); j < n_rows * (kHeadDim / 4); j += OneToken::kThreads) {
    const int i = j / (kHeadDim / 4), at = j % (kHeadDim / 4) * 4;
    copy_16(shared_address(&s.row[i][at]),
            (i < n_heads    ? task.q
             : i == n_heads ? task.k
                            : task.v) +
                place_of(i) + at,
            true);
  }
  end_copies();
  wait_copies<0>();
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x) / 32; i < n_rows; i += OneToken::kWarps) {
    const bool is_q = i < n_heads, is_k = i == n_heads;
    float* row = s.row[i];
    if (is_q || is_k) {
      float* normed = is_q ? (writes ? task.q_normed : nullptr) : (stores ? task.k_normed : nullptr);
      float* rotated = is_q ? (writes ? task.q_rotated : nullptr) : (stores ? task.k_rotated : nullptr);
      rotate_head(row, kHeadDim, is_q ? task.q_norm : task.k_norm, is_q ? task.q_eps : task.k_eps, task.rope, s.angles,
                  normed == nullptr ? nullptr : normed + place_of(i),
                  rotated == nullptr ? nullptr : rotated + place_of(i));
    }
    __half* halves = is_q ? s.attention.q[i] : is_k ? s.key : s.value;
    for (int j = lane; j < kHeadDim; j += 32) {
      halves[j] = __float2half_rn(row[j]);
      if (!is_q && stores) {
        put(ops::CacheType::f16, row[j], true,
            is_k ? key_place(cache, page, kv_head, position, j) : value_place(cache, page, kv_head, position, j));
      }
    }
  }
}

// grid: groups of 16 heads of every KV head; segments.
template <int kHeadDim>
__global__ void __launch_bounds__(OneToken::kThreads)
    fast_decode_attention_kernel(const __grid_constant__ AttentionTask task, const __grid_constant__ HeadsTask heads,
                                 int n_groups) {
  using Attention = FastAttention<kHeadDim, OneToken>;
  extern __shared__ __align__(128) std::byte memory[];
  auto& s = *reinterpret_cast<DecodeShared<kHeadDim>*>(memory);
  const int position = heads.positions[0];
  const TokenTile tile{0, 1, heads.sequences[0], position};
  const int64_t per_kv_head = task.n_heads / task.cache.n_kv_heads, kv_head = blockIdx.x / n_groups;
  const int64_t head_0 = kv_head * per_kv_head + blockIdx.x % n_groups * OneToken::kHeads,
                head_end = (kv_head + 1) * per_kv_head;
  const int first_group = static_cast<int>(ops::first_visible(position, task.window)) / kKeys;
  const int segment = first_group * kKeys / kSegment + static_cast<int>(blockIdx.y);
  const int first = max(first_group, segment * (kSegment / kKeys)),
            last = min(position / kKeys, (segment + 1) * (kSegment / kKeys) - 1);
  if (first > last) return;
  const bool holds_new = last == position / kKeys;
  Attention attention(task, tile, table_of_tile(task.cache, 0), position, kv_head, head_0, head_end, s.attention);
  const auto make_queries = [&] {
    const float* angles = heads.table + int64_t{position} * heads.rope.dim;
    for (int i = static_cast<int>(threadIdx.x); i < heads.rope.dim; i += OneToken::kThreads) s.angles[i] = angles[i];
    constexpr __half kZero{};
    const auto n_heads = static_cast<int>(min(head_end - head_0, int64_t{kWarpQueries}));
    for (int i = n_heads * kHeadDim + static_cast<int>(threadIdx.x); i < kWarpQueries * kHeadDim;
         i += OneToken::kThreads) {
      s.attention.q[i / kHeadDim][i % kHeadDim] = kZero;  // no queries
    }
    __syncthreads();
    wait_for_previous();
    let_next_start();  // no earlier: the weights that the next kernel asks for would be ahead of queries, keys and
                       // values in every queue
    make_heads<kHeadDim>(heads, kv_head, head_0, head_end, holds_new, s);
  };
  const auto complete = [&](auto& k, auto& v) {
    if (!holds_new) return;
    const int t = static_cast<int>(threadIdx.x), key = position % kKeys;
    if (t < Attention::kPieces) {
      k[key / kKeyTile][t][key % kKeyTile] = reinterpret_cast<const uint4*>(s.key)[t];
      reinterpret_cast<uint4*>(v[key])[t] = reinterpret_cast<const uint4*>(s.value)[t];
    }
    __syncthreads();
  };
  const bool is_whole = task.n_segments == 1;
  attention.run(first, last, make_queries, complete, [&](int half) {
    is_whole ? attention.write_alone(half) : attention.write_partial(half, 0, static_cast<int>(blockIdx.y));
  });
}

template <int kHeadDim>
void start_decode(const AttentionTask& task, const HeadsTask& heads, const Queue& queue) {
  constexpr size_t kBytes = sizeof(DecodeShared<kHeadDim>);
  const auto kernel = fast_decode_attention_kernel<kHeadDim>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  take_decode_cut(kernel);
  const int64_t n_groups = (task.n_heads / task.cache.n_kv_heads + OneToken::kHeads - 1) / OneToken::kHeads;
  launch(queue, kernel,
         dim3(static_cast<unsigned>(task.cache.n_kv_heads * n_groups), static_cast<unsigned>(task.n_segments)),
         OneToken::kThreads, kBytes, task, heads, static_cast<int>(n_groups));
}

template <int kHeadDim, bool kSplit>
void start(const AttentionTask& task, const Queue& queue) {
  constexpr size_t kBytes = sizeof(typename FastAttention<kHeadDim, ManyTokens>::Shared);
  const auto kernel = fast_attention_kernel<kHeadDim, kSplit>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  const int64_t n_groups = (task.n_heads / task.cache.n_kv_heads + ManyTokens::kHeads - 1) / ManyTokens::kHeads;
  launch(queue, kernel,
         dim3(static_cast<unsigned>(task.cache.n_kv_heads * n_groups), static_cast<unsigned>(task.n_tiles),
              static_cast<unsigned>(kSplit ? task.n_segments : 1)),
         ManyTokens::kThreads, kBytes, task, static_cast<int>(n_groups));
}

}  // namespace

void fast_attention_tiles(const AttentionTask& task, const Queue& queue) {
  task.cache.head_dim == 64 ? start<64, false>(task, queue) : start<128, false>(task, queue);
}
void fast_attention_split(const AttentionTask& task, const Queue& queue) {
  task.cache.head_dim == 64 ? start<64, true>(task, queue) : start<128, true>(task, queue);
}
void fast_decode_attention(const AttentionTask& task, const HeadsTask& heads, const Queue& queue) {
  task.cache.head_dim == 64 ? start_decode<64>(task, heads, queue) : start_decode<128>(task, heads, queue);
}

}  // namespace assay::backend::cuda
