// Attention of many tokens on Hopper. A block's last four warps feed: they turn keys and values of any type of cache
// into floats, a stage of a ring in shared memory at a time. Every other warp takes 16 queries that share their keys
// and goes through the segments on its own: barriers tell it which stages are there, and it waits for no other warp. A
// lane holds 8 queries x 16 keys of a segment's scores, then 8 queries x 4 or 8 columns of its outputs; the outputs so
// far stay in registers. Every chain, fold and merge is the contract's, as in attention.cu.
//
//   warps that feed   cache --> registers: floats ------------------> ring of stages in shared memory
//   another warp      q --> its own shared memory, with a stage of keys --> registers: scores
//                     scores --> its own shared memory: probabilities, with a stage of values
//                                                                     --> registers: outputs so far --> y
#include <algorithm>

#include "backend/cuda/attention/attention_chains.cuh"
#include "backend/cuda/attention/attention_stages.cuh"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/lanes.h"
#include "num/math.h"

namespace assay::backend::cuda {
namespace {

// The work of a launch: items are 1 << heads_log2 heads of a KV head with a run of tiles of tokens.
struct Work {
  int heads_log2, n_groups, n_columns;  // groups of heads of a KV head; of all
  int run_tiles, n_runs, n_tiles, n_items;
};

// Long items first, to and fro so that all blocks of threads have as much.
__host__ __device__ inline int item_of(int round, int block, int n_blocks) {
  return round * n_blocks + (round % 2 == 0 ? block : n_blocks - 1 - block);
}

// The items of this block of threads. Tiles that follow one another in a sequence are one place.
template <class Visit>
__device__ void for_each_place(const AttentionTask& task, const Work& work, const Visit& visit) {
  const auto n_blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int64_t per_kv_head = task.n_heads / task.cache.n_kv_heads;
  for (int round = 0;; ++round) {
    const int item = item_of(round, block, n_blocks);
    if (item >= work.n_items) return;
    const int column = item % work.n_columns, begin = (work.n_runs - 1 - item / work.n_columns) * work.run_tiles;
    const int end = min(begin + work.run_tiles, work.n_tiles);
    const int64_t kv_head = column / work.n_groups,
                  head_0 = kv_head * per_kv_head + (column % work.n_groups << work.heads_log2);
    for (int i = begin; i < end;) {
      const TokenTile tile = join_tiles(task.tiles, i, end);
      visit(QueryBlock{tile, kv_head, head_0, (kv_head + 1) * per_kv_head});
    }
  }
}

// x[i % 8] without memory.
__device__ inline float one_of(const float (&x)[8], int i) {
  const bool one = (i & 1) != 0, two = (i & 2) != 0, four = (i & 4) != 0;
  const float a = one ? x[1] : x[0], b = one ? x[3] : x[2], c = one ? x[5] : x[4], d = one ? x[7] : x[6];
  const float low = two ? b : a, high = two ? d : c;
  return four ? high : low;
}

// A warp with 16 queries. A lane has queries 8 (lane % 2) + i and, of the scores, keys 64 G + 16 c + lane / 2.
template <class C>
class Rows {
 public:
  // memory: the warp's own.
  __device__ Rows(const AttentionTask& task, int heads_log2, const StageRing<C>& ring, float* memory)
      : task_(task), heads_log2_(heads_log2), ring_(ring), p_(memory), q_(memory + kWarpProbabilities),
        first_query_(static_cast<int>(threadIdx.x) / 32 * kWarpQueries), odd_(static_cast<int>(threadIdx.x) % 2),
        l_(static_cast<int>(threadIdx.x) % 32 / 2) {
    // A power of two may be left for later: what it rounds, below the smallest normal number, no exponential shows.
    const bool is_power = (__float_as_uint(task.scale) & 0x807FFFFFu) == 0 && task.scale > 0.0f;
    scale_first_ = is_power ? 1.0f : task.scale;
    scale_later_ = is_power ? task.scale : 1.0f;
  }

  __device__ void run(const QueryBlock& place) {
    tokens_ = {place.tile, task_.window}, n_heads_ = static_cast<int>(place.head_end - place.head_0);
    row_0_ = static_cast<int>(place.tile.token * task_.n_heads + place.head_0);
    const int first_token = first_query_ >> heads_log2_, last_token = (first_query_ + kWarpQueries - 1) >> heads_log2_;
    any_begin_ = tokens_.begin_of(first_token), any_end_ = tokens_.position_of(last_token) + 1;
    all_begin_ = tokens_.begin_of(last_token), all_end_ = tokens_.position_of(first_token) + 1;
    put_queries();
    __syncwarp();
    Outputs<C> out = {};
    const int last = last_segment(tokens_.tile);
#pragma unroll 1
    for (int segment = first_segment(tokens_.tile, task_.window); segment <= last; ++segment) {
      const SegmentSpan span(tokens_.tile, task_.window, segment);
      float m[8], sum[8];
      put_by<C>(out, p_);
      score(span, out, m);
      find_probabilities(span, m, sum);
      merge_sums(segment, m, sum);
      __syncwarp();
      Outputs<C> values;
      add_values(span, values);
      __syncwarp();
      merge(values, out);
    }
    write(out);
  }

 private:
  __device__ bool all_see(int begin, int end) const { return all_begin_ <= begin && all_end_ >= end; }

  __device__ int row_of(int token, int head) const { return row_0_ + token * static_cast<int>(task_.n_heads) + head; }

  __device__ Seen seen() const { return Seen(tokens_, first_query_ + 8 * odd_, heads_log2_); }

  // [element][16], neighbours exchanged: so a query's element and its scores, which are stored by fours, come to lie in
  // registers of different banks. Two lanes a query.
  __device__ void put_queries() const {
    const int lane = made_anew(static_cast<int>(threadIdx.x) % 32), i = lane % kWarpQueries, side = lane / kWarpQueries;
    const int u = first_query_ + i, token = u >> heads_log2_, head = u & ((1 << heads_log2_) - 1);
    const bool is_there = token < tokens_.tile.n && head < n_heads_;
    const auto* from =
        reinterpret_cast<const float4*>(task_.q + int64_t{is_there ? row_of(token, head) : 0} * C::kHeadDim);
#pragma unroll 8
    for (int j = side; j < C::kHeadDim / 4; j += 2) {
      const float4 x = is_there ? from[j] : float4{0.0f, 0.0f, 0.0f, 0.0f};
      float* to = q_ + 4 * j * kWarpQueries + (i ^ 1);
      to[0] = x.x, to[kWarpQueries] = x.y, to[2 * kWarpQueries] = x.z, to[3 * kWarpQueries] = x.w;
    }
  }

  // Scores go where their probabilities will lie; what a lane reads there is its own. m: the lane's largest of each
  // query, a NaN if there is one, which makes a NaN of the sum and so of all outputs of its query. Masked keys have
  // -infinity.
  __device__ void score(const SegmentSpan& span, Outputs<C>& out, float (&m)[8]) {
    const int n = min(max(any_end_ - span.begin + kGroupKeys - 1, 0) / kGroupKeys, span.n_groups);
    if (n == 4) score_groups<4>(span, out, m);
    if (n == 3) score_groups<3>(span, out, m);
    if (n == 2) score_groups<2>(span, out, m);
    if (n == 1) score_groups<1>(span, out, m);
    if (n == 0) score_groups<0>(span, out, m);
  }
  template <int kN>
  __device__ void score_groups(const SegmentSpan& span, Outputs<C>& out, float (&m)[8]) {
    float score[kN == 0 ? 1 : 4 * kN][8];
#pragma unroll
    for (int k = 0; k < 4 * kN; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) score[k][i] = 0.0f;
    }
#pragma unroll 1
    for (int i = 0; i < C::kHeadDim; i += C::kElements) {
      ring_.wait_full();
      if constexpr (kN > 0) add_scores<C, kN>(ring_.stage() + 4 * l_, q_ + i * kWarpQueries + 8 * odd_, score);
      ring_.emptied();
      ring_.next();
    }
    if (scale_first_ != 1.0f) {
#pragma unroll
      for (int k = 0; k < 4 * kN; ++k) {
#pragma unroll
        for (int i = 0; i < 8; ++i) score[k][i] = score[k][i] * scale_first_;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) m[i] = __uint_as_float(kLowestScore);
    bring_back<C>(p_, out);
    float* to = own_probabilities(span);
#pragma unroll
    for (int k = 0; k < 4 * kN; ++k) write_queries(score[k], to + k * kScoreStep);
    if (all_see(span.begin, span.begin + kN * kGroupKeys)) {
#pragma unroll
      for (int k = 0; k < 4 * kN; ++k) {
#pragma unroll
        for (int i = 0; i < 8; ++i) m[i] = larger_or_nan(m[i], score[k][i]);
      }
    } else {
      mask(seen(), span.begin + l_, 4 * kN, own_probabilities(span), m);
    }
  }
  __device__ float* own_probabilities(const SegmentSpan& span) const {
    return p_ + odd_ * kOddLanes + (span.begin % kSegment + l_) * 4;
  }

  // Scores become probabilities, 0 where a key is masked; m and sum: of the segment, the same in all lanes of a query.
  __device__ void find_probabilities(const SegmentSpan& span, float (&m)[8], float (&sum)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int width = 16; width >= 2; width /= 2) m[i] = larger_or_nan(m[i], __shfl_xor_sync(kWholeWarp, m[i], width));
      m[i] = m[i] * scale_later_;
    }
    // Of Lanes32 lane / 2 and 16 further; a masked key's 0 changes no bit of a sum that begins at +0.
    float lane[2][8] = {};
    float* p = own_probabilities(span);
    const int n = (max(min(any_end_, span.end) - span.begin, 0) + 31) / 32;
    float x[2][8];
    read_queries(p, x[0]), read_queries(p + kScoreStep, x[1]);
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
      float e[2][8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 8; ++i) e[half][i] = num::fma(x[half][i], scale_later_, -m[i]);
      }
      const float* next = k + 1 < n ? p + 2 * kScoreStep : p;
      read_queries(next, x[0]), read_queries(next + kScoreStep, x[1]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          e[half][i] = num::exp_not_above_0(e[half][i]);
          lane[half][i] = lane[half][i] + e[half][i];
        }
        write_queries(e[half], p + half * kScoreStep);
      }
      p += 2 * kScoreStep;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum[i] = lane[0][i] + lane[1][i];
#pragma unroll
      for (int width = 16; width >= 2; width /= 2) sum[i] = sum[i] + __shfl_xor_sync(kWholeWarp, sum[i], width);
    }
  }

  // What the segment means for those before, a lane a query; lanes 2 i + odd_ have the lane's query i.
  __device__ void merge_sums(int segment, const float (&m)[8], const float (&sum)[8]) {
    const float m_segment = one_of(m, l_);
    float l_segment = one_of(sum, l_);
    l_segment = l_segment + (m_segment - m_segment);  // a NaN where the largest score is no number, +0 elsewhere
    const int token = (first_query_ + 8 * odd_ + l_ % 8) >> heads_log2_;
    const float m_both = m_segment > m_run_ ? m_segment : m_run_;
    a_ = num::exp(m_run_ - m_both), b_ = num::exp(m_segment - m_both);
    const int first = tokens_.begin_of(token) / kSegment;
    const bool is_first = segment == first,
               is_further = segment > first && segment * kSegment <= tokens_.position_of(token);
    if (is_first) m_run_ = m_segment, l_run_ = l_segment;
    if (is_further) m_run_ = m_both, l_run_ = num::fma(l_run_, a_, l_segment * b_);
    first_ = __ballot_sync(kWholeWarp, is_first) >> odd_;
    further_ = __ballot_sync(kWholeWarp, is_further) >> odd_;
  }
  __device__ void merge(const Outputs<C>& values, Outputs<C>& out) const {
    const int first_lane = made_anew(odd_);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float a = __shfl_sync(kWholeWarp, a_, first_lane + 2 * i),
                  b = __shfl_sync(kWholeWarp, b_, first_lane + 2 * i);
      const bool is_first = (first_ >> 2 * i & 1u) != 0, is_further = (further_ >> 2 * i & 1u) != 0;
#pragma unroll
      for (int c = 0; c < 4 * C::kColumns; ++c) {
        const float x = values[i][c];
        if (is_further) out[i][c] = num::fma(out[i][c], a, x * b);
        if (is_first) out[i][c] = x;
      }
    }
  }

  // The segment's outputs.
  __device__ void add_values(const SegmentSpan& span, Outputs<C>& sum) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int c = 0; c < 4 * C::kColumns; ++c) sum[i][c] = 0.0f;
    }
#pragma unroll 1
    for (int first = span.begin; first < span.end; first += C::kStageKeys) {
      ring_.wait_full();
      const float *p = p_ + odd_ * kOddLanes + first % kSegment * 4, *values = ring_.stage() + 4 * l_;
      int end = first + C::kStageKeys, all_begin = first, all_end = end;
      const auto add_some = [&](int from, int to) {
        if (from < to) add_seen<C>(seen(), from, to, first, p, values, sum);
      };
      const bool is_whole = all_see(first, end);
      if (!is_whole) {
        end = min(min(end, span.end), any_end_), all_begin = min(max(first, all_begin_), end),
        all_end = max(min(end, all_end_), all_begin);
        add_some(max(first, any_begin_), all_begin);
      }
      add_all<C>(p + (all_begin - first) * 4, values + (all_begin - first) * C::kHeadDim, all_end - all_begin, sum);
      if (!is_whole) add_some(all_end, end);
      ring_.emptied();
      ring_.next();
    }
  }
  __device__ void write(const Outputs<C>& out) const {
    const int first_lane = made_anew(odd_), own = first_query_ + 8 * first_lane;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int u = own + i, token = u >> heads_log2_, head = u & ((1 << heads_log2_) - 1);
      const float l = __shfl_sync(kWholeWarp, l_run_, first_lane + 2 * i);
      if (token >= tokens_.tile.n || head >= n_heads_) continue;
      float* to = task_.y + int64_t{row_of(token, head)} * C::kHeadDim + 4 * l_;
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) {
        const float* x = out[i] + 4 * c;
        *reinterpret_cast<float4*>(to + c * kGroupKeys) = {x[0] / l, x[1] / l, x[2] / l, x[3] / l};
      }
    }
  }

  const AttentionTask& task_;
  const int heads_log2_;
  StageRing<C> ring_;
  float *p_, *q_;
  const int first_query_, odd_, l_;
  float scale_first_, scale_later_;
  Tokens tokens_;
  int row_0_ = 0, n_heads_ = 0;  // of q and y; of the KV head from it on
  int any_begin_ = 0, any_end_ = 0, all_begin_ = 0,
      all_end_ = 0;  // positions that any token of the warp sees, and all of them
  float m_run_ = 0.0f, l_run_ = 0.0f, a_ = 0.0f, b_ = 0.0f;  // of the query that the lane merges
  uint32_t first_ = 0, further_ = 0;  // bit 2 i: of query i it is the first segment, a further one
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    attention_hopper_kernel(const __grid_constant__ AttentionTask task, const Work work) {
  extern __shared__ __align__(128) float memory[];
  StageRing<C> ring(memory + C::kWarps * C::kWarpFloats);
  if (threadIdx.x == 0) ring.make();
  __syncthreads();
  let_next_start();
  wait_for_previous();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp >= C::kWarps) {
    if constexpr (C::kWarps == 8) give_registers<kFeederRegisters>();
    StageFeeder<C> feeder(task, ring);
    for_each_place(task, work, [&](const QueryBlock& place) { feeder.run(place); });
  } else {
    if constexpr (C::kWarps == 8) take_registers<kRowRegisters>();
    Rows<C> rows(task, work.heads_log2, ring, memory + warp * C::kWarpFloats);
    for_each_place(task, work, [&](const QueryBlock& place) { rows.run(place); });
  }
}

Work work_of(const AttentionTask& task, int queries) {
  const int64_t per_kv_head = task.n_heads / task.cache.n_kv_heads;
  const auto padded = [&](int log2) { return (per_kv_head + (1 << log2) - 1) >> log2 << log2; };
  Work work;
  work.heads_log2 = per_kv_head >= 3 ? 2 : per_kv_head == 2 ? 1 : 0;
  if (queries >= 8 * kTileTokens && per_kv_head > 4 && padded(3) == padded(2)) work.heads_log2 = 3;
  work.n_groups = static_cast<int>(padded(work.heads_log2) >> work.heads_log2);
  work.n_columns = static_cast<int>(task.cache.n_kv_heads) * work.n_groups;
  work.run_tiles = (queries / kTileTokens) >> work.heads_log2;
  work.n_tiles = static_cast<int>(task.n_tiles);
  work.n_runs = (work.n_tiles + work.run_tiles - 1) / work.run_tiles;
  work.n_items = work.n_runs * work.n_columns;
  return work;
}

template <class C>
void start(const AttentionTask& task, int n_processors, const Queue& queue) {
  const auto kernel = attention_hopper_kernel<C>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(C::kBytes));
  const Work work = work_of(task, C::kQueries);
  launch(queue, kernel, dim3(static_cast<unsigned>(std::min(work.n_items, n_processors))), C::kThreads, C::kBytes, task,
         work);
}

// Keys that the first or the last block of threads walks, one of which has most to do: about, as if there were one
// sequence.
template <class C>
int64_t longest_walk(const AttentionTask& task, int n_blocks) {
  constexpr int kStartKeys = 64;  // an item's start and end take as long as so many
  const Work work = work_of(task, C::kQueries);
  const int64_t longest_item = task.n_segments * kSegment;
  int64_t longest = 0;
  for (const int block : {0, n_blocks - 1}) {
    int64_t keys = 0;
    for (int round = 0; round * n_blocks < work.n_items; ++round) {
      const int item = item_of(round, block, n_blocks), run = item / work.n_columns;
      if (item < work.n_items) keys += longest_item - run * work.run_tiles * kTileTokens % longest_item + kStartKeys;
    }
    longest = std::max(longest, keys);
  }
  return longest;
}

// Blocks of half as many queries leave fewer multiprocessors without work at the end, but share what is read among
// fewer, and four warps hide one another's waits less than eight: so they take more than half the time.
template <int head_dim>
void start_any(const AttentionTask& task, int n_processors, const Queue& queue) {
  using Many = PrefillCut<head_dim, 8, 2, head_dim == 64 ? 8192 : 4096>;
  using Few = PrefillCut<head_dim, 4, head_dim == 64 ? 4 : 3, 8192>;
  constexpr double kFewTime = head_dim == 64 ? 0.61 : 0.55;  // of Many's, for as many keys
  const auto many = static_cast<double>(longest_walk<Many>(task, n_processors)),
             few = static_cast<double>(longest_walk<Few>(task, n_processors));
  if (few * kFewTime < many) return start<Few>(task, n_processors, queue);
  start<Many>(task, n_processors, queue);
}

}  // namespace

void attention_hopper(const AttentionTask& task, const Queue& queue) {
  task.cache.head_dim == 64 ? start_any<64>(task, queue.n_multiprocessors, queue)
                            : start_any<128>(task, queue.n_multiprocessors, queue);
}

}  // namespace assay::backend::cuda
