// decode_attention of heads of 64 or 128 elements over a cache in half precision, the usual case, in few instructions:
// a kernel finds little of itself in the instruction caches, and a chain of short phases waits for its code more than
// for anything else. A block of threads takes a segment of 256 keys for kHeads query heads that share them: thread t
// holds key t, later columns of the values. Whatever does not depend on the projections is in registers or on its way
// to shared memory before the kernel waits for them.
#include "backend/cuda/attention/cache_pages.cuh"
#include "backend/cuda/attention/cache_pieces.cuh"
#include "backend/cuda/attention/kv_place.cuh"
#include "backend/cuda/decode/decode_merge.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = kAttentionThreads, kWarps = kAttentionWarps,
              kSegment = static_cast<int>(ops::kAttentionSegment);
static_assert(kSegment == kThreads);
constexpr int kAhead = 16;                  // keys are read so many at a time
constexpr int kRowOfP = kSegment + kAhead;  // probabilities of a head

template <int kHeads, int kDim>
struct Shared {
  float q[kHeads][kDim];
  float p[kHeads][kRowOfP];  // of the segment's visible keys, the first of them at 0
  uint4 new_key[kDim / 8];
  int maxima[kHeads][kWarps];
  float l[kHeads];
  MergeShared<kHeads> merge;
};

// Integers that are ordered as the floats are, and back.
__device__ int ordered(int bits) { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }

// One of the new token's heads as a lane of its warp has it: elements lane + 32 i. After rotation each is fma(a, by_a,
// b * by_b) of two elements of the head; where they are and what they are multiplied by is known before the wait.
template <int kDim>
struct LaneOfHead {
  static constexpr int kElements = kDim / 32;
  const float* a[kElements];
  const float* b[kElements];
  float by_a[kElements], by_b[kElements];
  bool is_first[kElements], is_rotated[kElements];

  __device__ void find(const float* head, bool rotates, const RopeShape& rope, const float* angles) {
    const int lane = static_cast<int>(threadIdx.x % 32), dim = static_cast<int>(rope.dim), half = dim / 2;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int j = lane + 32 * i;
      is_rotated[i] = rotates && j < dim;
      is_first[i] = rope.interleaved ? j % 2 == 0 : j < half;
      const int partner = !is_rotated[i] ? j : rope.interleaved ? j ^ 1 : is_first[i] ? j + half : j - half;
      const int angle = rope.interleaved ? j / 2 : is_first[i] ? j : j - half;
      a[i] = head + (is_first[i] ? j : partner);
      b[i] = head + (is_first[i] ? partner : j);
      const float cos = is_rotated[i] ? angles[angle] : 0.0f, sin = is_rotated[i] ? angles[half + angle] : 0.0f;
      by_a[i] = is_first[i] ? cos : sin;
      by_b[i] = is_first[i] ? -sin : cos;
      compute_now(a[i]), compute_now(b[i]), compute_now(by_a[i]), compute_now(by_b[i]);
    }
  }
  // w: of the norm; normed: where its result is kept, null: nowhere.
  __device__ void norm(const float* head, const float* w, float eps, float* normed, float (&x_a)[kElements],
                       float (&x_b)[kElements]) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const float own = is_first[i] ? x_a[i] : x_b[i];
      sum = num::fma(own, own, sum);
    }
    sum = __shfl_sync(kWholeWarp, fold_lanes(sum), 0);
    const float r = 1.0f / sqrtf(sum / static_cast<float>(kDim) + eps);
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      x_a[i] = (x_a[i] * r) * w[a[i] - head];
      x_b[i] = (x_b[i] * r) * w[b[i] - head];
      if (normed != nullptr) normed[threadIdx.x % 32 + 32 * i] = is_first[i] ? x_a[i] : x_b[i];
    }
  }
};

// Chains of a thread's columns of the values over the keys of its segment, ascending; eight keys are read while eight
// are added.
template <int kColumns, int kDim>
struct Columns {
  float sum[kColumns] = {};
  struct EightKeys {
    float p[8];
    uint32_t v[8];  // one half, or two
  };
  static __device__ void read(const float* p, const std::byte* v, EightKeys& to) {
#pragma unroll
    for (int k = 0; k < 8; k += 4) {
      const float4 four = *reinterpret_cast<const float4*>(p + k);
      to.p[k] = four.x, to.p[k + 1] = four.y, to.p[k + 2] = four.z, to.p[k + 3] = four.w;
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const std::byte* at = v + k * kDim * 2;
      to.v[k] = kColumns == 1 ? *reinterpret_cast<const uint16_t*>(at) : *reinterpret_cast<const uint32_t*>(at);
    }
  }
  __device__ void add_key(float p, uint32_t v) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sum[c] = num::fma(p, __half2float(__ushort_as_half(static_cast<unsigned short>(c == 0 ? v & 0xFFFFu : v >> 16))),
                        sum[c]);
    }
  }
  __device__ void add(const EightKeys& keys) {
#pragma unroll
    for (int k = 0; k < 8; ++k) add_key(keys.p[k], keys.v[k]);
  }
  // p and v: of the first key. kAhead zeros follow the last: they change no sum, for none is -0.
  __device__ void add_all(const float* p, const std::byte* v, int n) {
    EightKeys even, odd;
    read(p, v, even);
#pragma unroll 1
    for (; n > 0; n -= 16) {
      read(p + 8, v + 8 * kDim * 2, odd);
      add(even);
      p += 16, v += 16 * kDim * 2;
      read(p, v, even);  // after the last ones anything, which is not used
      add(odd);
    }
  }
};
constexpr int kStagedRows = kSegment + kAhead;

// Zeros behind the n keys of a block.
template <int kHeads, int kDim>
__device__ void end_keys(int n, Shared<kHeads, kDim>& s, std::byte* rows) {
  constexpr int kPerThread = kAhead * kDim * 2 / kThreads;  // bytes
  static_assert(kPerThread % 8 == 0 && kHeads * kAhead <= kThreads);
  const int t = static_cast<int>(threadIdx.x);
  auto* to = reinterpret_cast<uint2*>(rows + n * kDim * 2 + t * kPerThread);
#pragma unroll
  for (int i = 0; i < kPerThread / 8; ++i) to[i] = {};
  if (t < kHeads * kAhead) s.p[t / kAhead][n + t % kAhead] = 0.0f;
}

// Where the lane's first element of the new key, or of its value, goes in its page.
template <int kDim>
__device__ int64_t new_place(const CacheView& cache, int kv_head, int position, bool is_k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t head_at = is_k ? cache.k + kv_head * cache.k_head_bytes : cache.v + kv_head * cache.v_head_bytes;
  const int tile_at = position / kKeyTile % kPageTiles * static_cast<int>(cache.k_tile_bytes);
  return head_at + (is_k ? tile_at + (lane / 8 * kKeyTile + position % kKeyTile) * kPieceBytes + lane % 8 * 2
                         : (position % kCachePage * kDim + lane) * 2);
}

// Of the warps that take a head of the new token: queries, then the key and the value where the block's segment holds
// them. What is known of it before the wait; where it goes, in the cache and for observers.
template <int kHeads, int kDim, bool kPlain>
struct NewHead {
  static constexpr int kElements = kDim / 32;
  bool is_q, is_k, takes, stores;
  int at_head;
  const float* head;
  const float* norm_w;
  float* normed;
  float* rotated;
  LaneOfHead<kDim> lane_of_head;
  std::byte* cache_at;
  int cache_step;  // for 32 elements

  // place: of new_place().
  __device__ NewHead(const HeadsTask& heads, int first_head, int kv_head, int position, bool holds_new,
                     std::byte* place) {
    const CacheView& cache = heads.cache;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int per_key = static_cast<int>(heads.n_heads) / static_cast<int>(cache.n_kv_heads);
    is_q = warp < kHeads, is_k = warp == kHeads, takes = is_q || (holds_new && warp <= kHeads + 1);
    stores = !is_q && first_head % per_key == 0;
    const bool keeps = is_q ? blockIdx.y == 0 : is_k && stores;
    at_head = (is_q ? first_head + warp : kv_head) * kDim;
    head = (is_q ? heads.q : is_k ? heads.k : heads.v) + at_head;
    norm_w = kPlain ? nullptr : is_q ? heads.q_norm : is_k ? heads.k_norm : nullptr;
    normed = kPlain || !keeps ? nullptr : is_q ? heads.q_normed : heads.k_normed;
    rotated = kPlain || !keeps ? nullptr : is_q ? heads.q_rotated : heads.k_rotated;
    if (takes) lane_of_head.find(head, is_q || is_k, heads.rope, heads.table + int64_t{position} * heads.rope.dim);
    cache_at = place;
    cache_step = is_k ? 4 * kKeyTile * kPieceBytes : 64;
    compute_now(cache_at);
  }
  // v_row: the new value's in shared memory.
  __device__ void take(const HeadsTask& heads, Shared<kHeads, kDim>& s, std::byte* v_row) const {
    if (!takes) return;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    float x_a[kElements], x_b[kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i) x_a[i] = __ldcg(lane_of_head.a[i]), x_b[i] = __ldcg(lane_of_head.b[i]);
    if (norm_w != nullptr) {
      lane_of_head.norm(head, norm_w, is_q ? heads.q_eps : heads.k_eps, normed == nullptr ? nullptr : normed + at_head,
                        x_a, x_b);
    }
    std::byte* own_at = (is_k ? reinterpret_cast<std::byte*>(s.new_key) : v_row) + 2 * lane;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const float x =
          lane_of_head.is_rotated[i] ? num::fma(x_a[i], lane_of_head.by_a[i], x_b[i] * lane_of_head.by_b[i]) : x_a[i];
      if (is_q) {
        s.q[warp][lane + 32 * i] = x;
      } else {
        const uint16_t half = rounded_half(x);
        *reinterpret_cast<uint16_t*>(own_at + 64 * i) = half;
        if (stores) __stcg(reinterpret_cast<unsigned short*>(cache_at + i * cache_step), half);
      }
      if (rotated != nullptr) rotated[at_head + lane + 32 * i] = x;
    }
  }
};

// Scores of the thread's key, before they are scaled, become probabilities, the key being number i_visible of the
// segment's visible ones, or not visible; m: the segment's maxima.
template <int kHeads, int kDim>
__device__ void find_probabilities(float (&score)[kHeads], float scale, bool is_visible, int i_visible,
                                   Shared<kHeads, kDim>& s, float (&m)[kHeads]) {
  const int lowest = ordered(static_cast<int>(0xFF800000u));
#pragma unroll
  for (int g = 0; g < kHeads; ++g) {
    score[g] = score[g] * scale;
    const bool counts = is_visible && score[g] == score[g];
    const int top = __reduce_max_sync(kWholeWarp, counts ? ordered(__float_as_int(score[g])) : lowest);
    if (threadIdx.x % 32 == 0) s.maxima[g][threadIdx.x / 32] = top;
  }
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kHeads; ++g) {
    int top = s.maxima[g][0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) top = max(top, s.maxima[g][w]);
    m[g] = __int_as_float(ordered(top));
    if (is_visible) s.p[g][i_visible] = num::exp(score[g] - m[g]);
  }
}

// Lanes32 over the keys begin .. end of the segment, by the last warps, one a head.
template <int kHeads, int kDim>
__device__ void sum_probabilities(int begin, int end, Shared<kHeads, kDim>& s) {
  const int g = static_cast<int>(threadIdx.x) / 32 - (kWarps - kHeads), lane = static_cast<int>(threadIdx.x) % 32;
  if (g < 0) return;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int i = 32 * w + lane - begin;
    if (static_cast<unsigned>(i) < static_cast<unsigned>(end - begin)) sum = sum + s.p[g][i];
  }
  sum = fold_lanes(sum);
  if (lane == 0) s.l[g] = sum;
}

// grid: query heads / kHeads, segments. kPlain: heads have no norm, nobody looks at them, and no other shard wants the
// result.
template <int kHeads, int kDim, bool kPlain>
__device__ __forceinline__ void attend(const DecodeAttentionTask& task) {
  extern __shared__ __align__(16) std::byte staged[];  // rows of values, from the first visible key on
  __shared__ Shared<kHeads, kDim> s;
  if (task.lets_early) let_next_start();
  constexpr int kRowBytes = 2 * kDim, kPieces = kDim / 8;
  constexpr int kColumns = kHeads == 1 ? 1 : 2,
                kOfHead = kDim / kColumns;  // of the values: of a thread; threads of a head
  const HeadsTask& heads = task.heads;
  const CacheView& cache = heads.cache;
  const int t = static_cast<int>(threadIdx.x);
  const int n_kv_heads = static_cast<int>(cache.n_kv_heads), per_key = static_cast<int>(heads.n_heads) / n_kv_heads;
  const int first_head = static_cast<int>(blockIdx.x) * kHeads, kv_head = first_head / per_key;
  const PageTable table = table_of_tile(cache, 0);
  // Of the right segment where there is no window; as long as the position takes.
  SegmentPages pages(table, static_cast<int>(blockIdx.y));
  const int position = heads.positions[0];
  const int first_key = static_cast<int>(ops::first_visible(position, task.window)), first = first_key / kSegment,
            last = position / kSegment;
  const int i_segment = first + static_cast<int>(blockIdx.y), segment = i_segment * kSegment;
  if (i_segment > last) return;
  if (first > 0) pages = SegmentPages(table, i_segment);
  const int begin = max(first_key - segment, 0), end = min(position + 1 - segment, kSegment);
  const bool holds_new = i_segment == last, is_visible = t >= begin && t < end;
  const int own = holds_new ? end - 1 : kSegment;  // the key that is not in the cache yet
  // Ahead of the wait: what earlier tokens left, the rotation, and where this token's heads come from and go to. place:
  // of the new key and value, found sooner or later, as registers or time are short.
  std::byte* place = pages.of(end - 1);
  const auto find_place = [&] {
    place += new_place<kDim>(cache, kv_head, position, threadIdx.x / 32 == kHeads);
    compute_now(place);
  };
  if constexpr (kDim == 128) find_place();
  fetch_rows<kThreads, kRowBytes>(pages, cache.v + kv_head * cache.v_head_bytes, begin, min(end, own), staged);
  const std::byte* tile =
      pages.of(t) + cache.k + kv_head * cache.k_head_bytes + t / kKeyTile % kPageTiles * cache.k_tile_bytes;
  const auto* pieces = reinterpret_cast<const uint4*>(tile) + t % kKeyTile;
  uint4 key[kPieces] = {};
  if (is_visible && t != own) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) key[i] = __ldcg(pieces + i * kKeyTile);
  }
  if constexpr (kDim != 128) find_place();
  const NewHead<kHeads, kDim, kPlain> new_head(heads, first_head, kv_head, position, holds_new, place);
  float* y = task.y + first_head * kDim + t * kColumns;
  compute_now(y);
  end_keys(end - begin, s, staged);
  wait_for_previous();
  let_next_start();

  new_head.take(heads, s, staged + (own - begin) * kRowBytes);
  __syncthreads();
  if (t == own) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) key[i] = s.new_key[i];
  }
  float score[kHeads] = {};
  // Warps that have no visible key leave the others the multiprocessor.
  if (t / 32 * 32 < end && t / 32 * 32 + 32 > begin) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      float k[8];
      Piece<ops::CacheType::f16>::widen(key[i], 0.0f, k);
      add_products<kHeads>(k, &s.q[0][8 * i], kDim, score);
    }
  }
  float m[kHeads];
  find_probabilities(score, task.scale, is_visible, t - begin, s, m);
  asm volatile("cp.async.wait_all;" : : : "memory");
  __syncthreads();
  sum_probabilities(begin, end, s);
  const int g = t / kOfHead, j = t % kOfHead * kColumns;
  Columns<kColumns, kDim> out;
  if (g < kHeads) out.add_all(s.p[g], staged + 2 * j, end - begin);
  __syncthreads();
  const int n = last - first + 1;
  if (n == 1) {
    if (g < kHeads) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float quotient = out.sum[c] / s.l[g];
        __stcg(y + c, quotient);
        if (!kPlain) send_column(task.send, first_head * kDim + t * kColumns + c, quotient);
      }
    }
    if (!kPlain) tell_shards(task.send, gridDim.x);
    return;
  }
  if (g < kHeads) {
    float* partial = partials_of(task, first_head + g, static_cast<int>(blockIdx.y), kDim) + 2 + j;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) partial[c] = out.sum[c];
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    float* partial = partials_of(task, first_head + h, static_cast<int>(blockIdx.y), kDim);
    if (t == h) partial[0] = m[h], partial[1] = s.l[h];
  }
  constexpr int kRoom = kStagedRows * kDim / 2;
  merge_if_last<kHeads>(task, kDim, first_head, n, reinterpret_cast<float*>(staged), kRoom, s.merge);
}

template <int kHeads, int kDim, bool kPlain>
__global__ void __launch_bounds__(kThreads, 2)
    decode_attention_f16_kernel(const __grid_constant__ DecodeAttentionTask task) {
  attend<kHeads, kDim, kPlain>(task);
}
// With so few registers that a block starts beside one of the product before it.
template <int kHeads, int kDim, bool kPlain>
__global__ void __maxnreg__(112) narrow_decode_attention_f16_kernel(const __grid_constant__ DecodeAttentionTask task) {
  attend<kHeads, kDim, kPlain>(task);
}

template <int kHeads, int kDim>
void start(const DecodeAttentionTask& task, const Queue& queue) {
  constexpr int kBytes = kStagedRows * 2 * kDim;
  const HeadsTask& h = task.heads;
  const bool plain = h.are_bare() && h.q_rotated == nullptr && task.send.n_shards == 0;
  const auto of_plain = [] {
    if constexpr (kHeads == 1 && kDim == 128) return narrow_decode_attention_f16_kernel<kHeads, kDim, true>;
    if constexpr (kHeads != 1 || kDim != 128) return decode_attention_f16_kernel<kHeads, kDim, true>;
  };
  const auto kernel = plain ? of_plain() : decode_attention_f16_kernel<kHeads, kDim, false>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  take_decode_cut(kernel);
  launch(queue, kernel, dim3(static_cast<unsigned>(h.n_heads / kHeads), static_cast<unsigned>(task.n_segments)),
         kThreads, kBytes, task);
}

}  // namespace

void decode_attention_f16(const DecodeAttentionTask& task, bool four, const Queue& queue) {
  if (task.heads.cache.head_dim == 64) {
    four ? start<4, 64>(task, queue) : start<1, 64>(task, queue);
  } else {
    four ? start<4, 128>(task, queue) : start<1, 128>(task, queue);
  }
}

}  // namespace assay::backend::cuda
