// Attention of many tokens over a cache of f16. A block of 4 warps takes 64 queries that share their keys, 16 a warp,
// and walks the segments. Keys and values pass through shared memory as floats, a stage of each at a time; a thread
// holds 8 queries x 16 keys of a segment's scores, then 8 queries x 4 columns or more of the outputs. So a warp alone
// finds its queries' maxima, exponentials and sums, and blocks of threads meet only where a stage changes. Every chain,
// fold and merge is the contract's, as in attention.cu.
//
//   device memory   q                      keys, values (f16)                y: the outputs so far
//                   |                      |  a stage ahead, in registers    ^
//                   v                      v                                 |
//   shared memory   q of 64 queries        two stages of floats, by turns    |
//                   |                      |                                 |
//   registers       +--> scores <----------+----------> sums of columns -----+  merged by the factors of each query
//                        |                                ^
//   shared memory        +--> p of each warp: scores, then probabilities; factors
#include "backend/cuda/attention/prefill_stages.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/lanes.h"
#include "num/math.h"

namespace assay::backend::cuda {
namespace {

using namespace prefill;

// What the merge of segments needs of each query.
struct Factors {
  float a[kQueries], b[kQueries], l[kQueries];
};

// The heads that a block takes of a token's, 1 << heads_log2, and the tiles of tokens that are 64 queries with so many.
struct Shape {
  int heads_log2, n_groups, n_tiles;
};

constexpr int kStep = 16 * 4;  // floats between two of a lane's keys

// bits: of Seen; kWhole: every query sees every key.
template <bool kWhole>
__device__ bool is_seen(uint32_t bits, int i) {
  return kWhole || (bits >> i & 1u) != 0;
}

// Of the scores of n keys of a lane at p, keys first, first + 16, ...: each query's largest, over the lanes that share
// its keys.
template <bool kWhole>
__device__ void find_largest(const Seen& seen_by, const float* p, int first, int n, float (&m)[8]) {
  constexpr uint32_t kLowest = 0xFF800000u;  // -infinity
#pragma unroll
  for (int i = 0; i < 8; ++i) m[i] = __uint_as_float(kLowest);
#pragma unroll(kWhole ? 4 : 1)
  for (int k = 0; k < n; ++k) {
    float x[8];
    read_queries(p + k * kStep, x);
    const uint32_t bits = kWhole ? 0 : seen_by.of(first + 16 * k);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (is_seen<kWhole>(bits, i)) m[i] = fmaxf(m[i], x[i]);  // of the numbers
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int width = 16; width >= 2; width /= 2) m[i] = fmaxf(m[i], __shfl_xor_sync(kWholeWarp, m[i], width));
  }
}

// Lanes32's tree, over the lanes that share eight queries.
__device__ __forceinline__ void sum_lanes(const float (&lane)[2][8], float (&sum)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum[i] = lane[0][i] + lane[1][i];
#pragma unroll
    for (int width = 16; width >= 2; width /= 2) sum[i] = sum[i] + __shfl_xor_sync(kWholeWarp, sum[i], width);
  }
}

// A lane has queries 8 (lane % 2) + i of the warp's and, of the scores, keys 64 G + 16 c + lane / 2.
template <int kHeadDim>
class Prefill {
 public:
  using C = Cut<kHeadDim>;
  static constexpr int kElements = C::kElements, kStageKeys = C::kStageKeys, kColumns = C::kColumns;
  static constexpr size_t kBytes =
      sizeof(float) * (kQueries * kHeadDim + 4 * kWarpProbabilities + 2 * C::kStageFloats) + sizeof(Factors);

  __device__ Prefill(const AttentionTask& task, const QueryBlock& place, int heads_log2, float* memory)
      : task_(task), tokens_{place.tile, task.window}, head_0_(place.head_0), head_end_(place.head_end),
        heads_log2_(heads_log2), q_(memory), p_(memory + kQueries * kHeadDim),
        factors_(*reinterpret_cast<Factors*>(p_ + 4 * kWarpProbabilities + 2 * C::kStageFloats)),
        warp_(static_cast<int>(threadIdx.x) / 32), odd_(static_cast<int>(threadIdx.x) % 2),
        l_(static_cast<int>(threadIdx.x) % 32 / 2),
        stages_(task.cache, place.tile.sequence, place.kv_head, p_ + 4 * kWarpProbabilities) {
    seen_by_warp_begin_ = begin_of_token((warp_ * kWarpQueries + kWarpQueries - 1) >> heads_log2);
    seen_by_warp_end_ = position_of((warp_ * kWarpQueries) >> heads_log2) + 1;
  }

  __device__ void run() {
    const int first = begin_of_token(0) / kSegment;
    last_segment_ = (tokens_.tile.position + tokens_.tile.n - 1) / kSegment;
    begin_segment(first);
    stages_.load_keys(groups_, 0);
    put_queries();
    for (int i = first; i <= last_segment_; ++i) {
      if (groups_.n == 1) score_segment<1>();
      if (groups_.n == 2) score_segment<2>();
      if (groups_.n == 3) score_segment<3>();
      if (groups_.n == 4) score_segment<4>();
      all_see(groups_.begin, groups_.begin + groups_.n * kGroupKeys) ? find_probabilities<true>()
                                                                     : find_probabilities<false>();
      __syncwarp();
      add_values(i);
      if (i < last_segment_) begin_segment(i + 1);
    }
    __syncthreads();  // the shared memory is free
  }

 private:
  __device__ int position_of(int token) const { return tokens_.position_of(token); }
  __device__ int begin_of_token(int token) const { return tokens_.begin_of(token); }
  __device__ int token_of(int i) const { return (warp_ * kWarpQueries + 8 * odd_ + i) >> heads_log2_; }
  __device__ bool all_see(int begin, int end) const { return seen_by_warp_begin_ <= begin && seen_by_warp_end_ >= end; }

  // Two threads a query.
  __device__ void put_queries() const {
    const int u = static_cast<int>(threadIdx.x) % kQueries, side = static_cast<int>(threadIdx.x) / kQueries,
              token = u >> heads_log2_;
    const int64_t head = head_0_ + (u & ((1 << heads_log2_) - 1));
    const bool is_there = token < tokens_.tile.n && head < head_end_;
    const int64_t row = is_there ? (tokens_.tile.token + token) * task_.n_heads + head : 0;
    const auto* from = reinterpret_cast<const float4*>(task_.q + row * kHeadDim);
#pragma unroll 4
    for (int j = side; j < kHeadDim / 4; j += 2) {
      const float4 x = is_there ? from[j] : float4{0.0f, 0.0f, 0.0f, 0.0f};
      float* to = q_ + 4 * j * kQueries + u;
      to[0] = x.x, to[kQueries] = x.y, to[2 * kQueries] = x.z, to[3 * kQueries] = x.w;
    }
  }

  // The groups of keys of a segment that any token sees.
  __device__ void begin_segment(int segment) {
    const int begin = max(begin_of_token(0), segment * kSegment);
    groups_.begin = begin / kGroupKeys * kGroupKeys;
    groups_.end = min(position_of(tokens_.tile.n) + 1, (segment + 1) * kSegment);
    groups_.n = (groups_.end - groups_.begin + kGroupKeys - 1) / kGroupKeys;
  }

  template <int kN>
  __device__ void score_segment() {
    float score[4 * kN][8];
#pragma unroll
    for (int k = 0; k < 4 * kN; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) score[k][i] = 0.0f;
    }
#pragma unroll 1
    for (int i = 0; i < kHeadDim / kElements; ++i) {
      float* stage = stages_.next_stage();
      stages_.store_keys(groups_, stage);
      __syncthreads();
      if (i + 1 < kHeadDim / kElements) {
        stages_.load_keys(groups_, i + 1);
      } else {
        stages_.load_values(groups_, groups_.begin);
      }
      add_scores<C, kN>(stage + 4 * l_, q_ + i * kElements * kQueries + warp_ * kWarpQueries + 8 * odd_, score);
    }
    put_scores<kN>(score);
  }

  // The scores go where their probabilities will lie: a loop over them is short, and a thread reads its own.
  template <int kN>
  __device__ void put_scores(const float (&score)[4 * kN][8]) const {
    float* to = own_probabilities();
#pragma unroll
    for (int k = 0; k < 4 * kN; ++k) {
      float x[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = score[k][i] * task_.scale;
      write_queries(x, to + k * kStep);
    }
  }
  __device__ float* own_probabilities() const {
    return p_ + warp_ * kWarpProbabilities + odd_ * kOddLanes + (groups_.begin % kSegment + l_) * 4;
  }
  __device__ Seen seen() const { return Seen(tokens_, warp_ * kWarpQueries + 8 * odd_, heads_log2_); }
  // Scores become probabilities, 0 where a key is masked; their maxima and sums enter into the factors of the merge.
  template <bool kWhole>
  __device__ void find_probabilities() {
    // lane: of Lanes32 lane / 2 and 16 further; a masked key's 0 changes no bit of a sum that begins at +0.
    float m[8], sum[8], lane[2][8] = {};
    const int n = 4 * groups_.n, first = groups_.begin + l_;
    float* p = own_probabilities();
    const Seen seen_by = seen();
    const auto sees = [](uint32_t bits, int i) { return is_seen<kWhole>(bits, i); };
    find_largest<kWhole>(seen_by, p, first, n, m);
#pragma unroll 1
    for (int k = 0; k < n; k += 2) {
      float x[2][8];
      uint32_t bits[2] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        read_queries(p + (k + half) * kStep, x[half]);
        if (!kWhole) bits[half] = seen_by.of(first + 16 * (k + half));
#pragma unroll
        for (int i = 0; i < 8; ++i) x[half][i] = sees(bits[half], i) ? x[half][i] - m[i] : 0.0f;
      }
      exponentials(x);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (!sees(bits[half], i)) x[half][i] = 0.0f;
          lane[half][i] = lane[half][i] + x[half][i];
        }
        write_queries(x[half], p + (k + half) * kStep);
      }
    }
    sum_lanes(lane, sum);
    merge_sums(m, sum);
  }
  // What the segment means for those before, a lane a query.
  __device__ void merge_sums(const float (&m)[8], const float (&sum)[8]) {
    float m_segment = m[0], l_segment = sum[0];
#pragma unroll
    for (int i = 1; i < 8; ++i) {
      if (l_ % 8 == i) m_segment = m[i], l_segment = sum[i];
    }
    const int token = token_of(l_ % 8), segment = groups_.begin / kSegment, first = begin_of_token(token) / kSegment;
    const float m_both = m_segment > m_run_ ? m_segment : m_run_;
    const float a = num::exp(m_run_ - m_both), b = num::exp(m_segment - m_both);
    if (segment == first) m_run_ = m_segment, l_run_ = l_segment;
    if (segment > first && position_of(token) >= segment * kSegment)
      m_run_ = m_both, l_run_ = num::fma(l_run_, a, l_segment * b);
    if (l_ < 8) {
      const int u = warp_ * kWarpQueries + 8 * odd_ + l_;
      factors_.a[u] = a, factors_.b[u] = b, factors_.l[u] = l_run_;
    }
  }

  // The segment's outputs, and their merge with those before, which lie in y.
  __device__ void add_values(int segment) {
    float sum[8][4 * kColumns];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int c = 0; c < 4 * kColumns; ++c) sum[i][c] = 0.0f;
    }
    const int begin = groups_.begin, end = groups_.end;
#pragma unroll 1
    for (int first = begin; first < end; first += kStageKeys) {
      float* stage = stages_.next_stage();
      stages_.store_values(stage);
      __syncthreads();
      if (first + kStageKeys < end) {
        stages_.load_values(groups_, first + kStageKeys);
      } else if (segment < last_segment_) {
        begin_segment(segment + 1);
        stages_.load_keys(groups_, 0);
      }
      const float* p = p_ + warp_ * kWarpProbabilities + odd_ * kOddLanes + first % kSegment * 4;
      const float* values = stage + 4 * l_;
      all_see(first, first + kStageKeys) ? add_all<C>(p, values, sum)
                                         : add_seen<C>(seen(), first, min(first + kStageKeys, end), p, values, sum);
    }
    write(segment, sum);
  }
  // Reads of y first, all of them at once.
  __device__ void write(int segment, const float (&sum)[8][4 * kColumns]) const {
    uint32_t is_there = 0, is_first = 0, is_seen = 0;  // bit i: query i
    int at[8];                                         // floats
    const bool is_last = segment == last_segment_;
    int own = warp_ * kWarpQueries + 8 * odd_;
    asm volatile("" : "+r"(own));  // as above
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int u = own + i, token = u >> heads_log2_, head = u & ((1 << heads_log2_) - 1);
      const int first = begin_of_token(token) / kSegment;
      at[i] = (token * static_cast<int>(task_.n_heads) + head) * kHeadDim;
      is_first |= static_cast<uint32_t>(segment == first) << i;
      is_seen |= static_cast<uint32_t>(segment >= first && segment * kSegment <= position_of(token)) << i;
      is_there |= static_cast<uint32_t>(token < tokens_.tile.n && head_0_ + head < head_end_) << i;
    }
    if (!is_last) is_there &= is_seen;
    float a[8], b[8], l[8];
    read_4(factors_.a + own, a), read_4(factors_.a + own + 4, a + 4);
    read_4(factors_.b + own, b), read_4(factors_.b + own + 4, b + 4);
    read_4(factors_.l + own, l), read_4(factors_.l + own + 4, l + 4);
    float* y = task_.y + (tokens_.tile.token * task_.n_heads + head_0_) * kHeadDim + 4 * l_;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float old[8][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if ((is_there & ~is_first) >> i & 1u) read_4(y + at[i] + c * kGroupKeys, old[i]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if ((is_there >> i & 1u) == 0) continue;
        float o[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float x = sum[i][4 * c + e];
          o[e] = (is_first >> i & 1u) != 0  ? x
                 : (is_seen >> i & 1u) != 0 ? num::fma(old[i][e], a[i], x * b[i])
                                            : old[i][e];
        }
        if (is_last) {
#pragma unroll
          for (int e = 0; e < 4; ++e) o[e] = o[e] / l[i];
        }
        write_4(y + at[i] + c * kGroupKeys, o);
      }
    }
  }

  const AttentionTask& task_;
  const Tokens tokens_;
  const int64_t head_0_, head_end_;
  const int heads_log2_;
  float *q_, *p_;  // queries, element by element; probabilities
  Factors& factors_;
  const int warp_, odd_, l_;
  Stages<kHeadDim> stages_;
  Groups groups_;  // of the segment at work
  int last_segment_ = 0;
  int seen_by_warp_begin_, seen_by_warp_end_;  // positions that all tokens of the warp see
  float m_run_ = 0.0f, l_run_ = 0.0f;          // of the query that the lane merges
};

// grid: groups of heads of every KV head; runs of tiles, the longest first. Tiles that follow one another in a sequence
// are one.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, kHeadDim == 256 ? 1 : 2)
    prefill_kernel(const __grid_constant__ AttentionTask task, const Shape shape) {
  extern __shared__ __align__(128) float memory[];
  let_next_start();
  wait_for_previous();
  const int64_t per_kv_head = task.n_heads / task.cache.n_kv_heads,
                kv_head = blockIdx.x / static_cast<unsigned>(shape.n_groups);
  const int64_t head_0 =
      kv_head * per_kv_head + (blockIdx.x % static_cast<unsigned>(shape.n_groups) << shape.heads_log2);
  const int n = 4 >> shape.heads_log2, begin = static_cast<int>(gridDim.y - 1 - blockIdx.y) * n,
            end = min(begin + n, shape.n_tiles);
  for (int i = begin; i < end;) {
    const TokenTile tile = join_tiles(task.tiles, i, end);
    Prefill<kHeadDim>(task, {tile, kv_head, head_0, (kv_head + 1) * per_kv_head}, shape.heads_log2, memory).run();
  }
}

template <int kHeadDim>
void start(const AttentionTask& task, const Queue& queue) {
  constexpr size_t kBytes = Prefill<kHeadDim>::kBytes;
  static_assert(kBytes == prefill_attention_bytes(kHeadDim));
  require(allow_shared(prefill_kernel<kHeadDim>, kBytes), "shared memory");
  const int64_t per_kv_head = task.n_heads / task.cache.n_kv_heads;
  Shape shape;
  shape.heads_log2 = per_kv_head >= 3 ? 2 : per_kv_head == 2 ? 1 : 0;
  shape.n_groups = static_cast<int>((per_kv_head + (1 << shape.heads_log2) - 1) >> shape.heads_log2);
  shape.n_tiles = static_cast<int>(task.n_tiles);
  const int tiles = 4 >> shape.heads_log2;
  const dim3 grid(static_cast<unsigned>(task.cache.n_kv_heads * shape.n_groups),
                  static_cast<unsigned>((shape.n_tiles + tiles - 1) / tiles));
  launch(queue, prefill_kernel<kHeadDim>, grid, kThreads, kBytes, task, shape);
}

}  // namespace

void attention_prefill(const AttentionTask& task, const Queue& queue) {
  const int64_t head_dim = task.cache.head_dim;
  if (head_dim == 64) start<64>(task, queue);
  if (head_dim == 128) start<128>(task, queue);
  if (head_dim == 256) start<256>(task, queue);
}

}  // namespace assay::backend::cuda
