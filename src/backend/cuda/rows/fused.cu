// See fused.h.
//
//   kernel               who                      where the row is meanwhile
//   norm_kernel          a block of threads a     shared memory: a, or a + b, or a + norm(b); its sum of squares; y;
//                        row                      integers of y
//   norm_warps_kernel    a warp a row, four a     the same
//                        block
//   heads_kernel         a warp a head of a       shared memory: norm, rotation; then q to device memory, k and v to
//                        token                    their page of the cache
//   lanes_heads_kernel   the same                 registers: a lane has every 32nd element
//   plain_heads_kernel   a lane four pairs of a   registers
//                        head
//   merge_rows_kernel    a lane 8 elements        registers: the segments' partials in ascending order; y; integers
//
//   The rows that come in (a, b, q, k, v, partials) are read behind wait_for_previous.
#include <cuda_fp16.h>

#include "backend/cuda/attention/heads.cuh"
#include "backend/cuda/linear/quantise.cuh"
#include "backend/cuda/rows/fused.h"
#include "backend/cuda/rows/norm_row.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "num/math.h"

namespace assay::backend::cuda {
namespace {

using quant::Activation;

__device__ uint16_t narrowed(float x, bool is_bf16) {
  return is_bf16 ? num::float_to_bf16(x) : __half_as_ushort(__float2half_rn(x));
}

// One block of threads a row.
__global__ void norm_kernel(NormTask task) {
  extern __shared__ __align__(16) float row[];
  __shared__ float broadcast;
  let_next_start();
  const int d = static_cast<int>(task.d), step = blockDim.x;
  const int64_t at = int64_t{blockIdx.x} * d;
  for (int j = threadIdx.x * 32; j < d; j += step * 32)
    asm volatile("prefetch.global.L1 [%0];" : : "l"(task.w + j));  // ahead of the wait
  wait_for_previous();
  if (task.pre_w != nullptr) {
    for (int j = threadIdx.x; j < d; j += step) row[j] = task.b[at + j];
    __syncthreads();
    const float r = inverse_rms(row, d, task.pre_eps, &broadcast);
    for (int j = threadIdx.x; j < d; j += step) {
      const float y = (row[j] * r) * task.pre_w[j];
      if (task.pre_y != nullptr) task.pre_y[at + j] = y;
      row[j] = task.a[at + j] + y;
    }
  } else {
#pragma unroll 4
    for (int j = threadIdx.x; j < d; j += step)
      row[j] = task.b == nullptr ? task.a[at + j] : task.a[at + j] + task.b[at + j];
  }
  if (task.sum != nullptr) {
    for (int j = threadIdx.x; j < d; j += step) task.sum[at + j] = row[j];
  }
  __syncthreads();
  const float r = inverse_rms(row, d, task.eps, &broadcast);
#pragma unroll 4
  for (int j = threadIdx.x; j < d; j += step) {
    const float y = (row[j] * r) * task.w[j];
    if (task.y != nullptr) task.y[at + j] = y;
    if (task.halves != nullptr) task.halves[at + j] = narrowed(y, task.is_bf16);
    row[j] = y;
  }
  if (task.q.q == nullptr) return;
  __syncthreads();
  task.q.kind == Activation::a256 ? quantise_row<256>(row, d, task.q, blockIdx.x)
                                  : quantise_row<32>(row, d, task.q, blockIdx.x);
}

// Of a row in shared memory, for all lanes of the warp that has it.
__device__ float inverse_rms_of_warp(const float* row, int d, float eps) {
  float sum = 0.0f;
#pragma unroll 8
  for (int j = static_cast<int>(threadIdx.x) % 32; j < d; j += 32) sum = num::fma(row[j], row[j], sum);
  sum = __shfl_sync(kWholeWarp, fold_lanes(sum), 0);
  return 1.0f / sqrtf(sum / static_cast<float>(d) + eps);
}
__device__ float4 sum_of(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ float4 normed(float4 x, float r, float4 w) {
  return {(x.x * r) * w.x, (x.y * r) * w.y, (x.z * r) * w.z, (x.w * r) * w.w};
}

constexpr int kNormWarps = 4;

// One warp a row: for many rows of whole blocks of 32.
template <int kBlock>
__global__ void __launch_bounds__(32 * kNormWarps) norm_warps_kernel(const __grid_constant__ NormTask task) {
  extern __shared__ float4 rows[];
  let_next_start();
  const int d = static_cast<int>(task.d), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t i_row = int64_t{blockIdx.x} * kNormWarps + warp, at = i_row * d;
  if (i_row >= task.n_rows) return;
  float4* row = rows + warp * (d / 4);
  const auto at_row = [&](const float* p) { return reinterpret_cast<const float4*>(p + at); };
  const auto put = [&](float* p, int j, float4 x) {
    if (p != nullptr) reinterpret_cast<float4*>(p + at)[j] = x;
  };
  wait_for_previous();
  if (task.pre_w != nullptr) {
#pragma unroll 4
    for (int j = lane; j < d / 4; j += 32) row[j] = at_row(task.b)[j];
    __syncwarp();
    const float r = inverse_rms_of_warp(reinterpret_cast<const float*>(row), d, task.pre_eps);
    __syncwarp();
#pragma unroll 4
    for (int j = lane; j < d / 4; j += 32) {
      const float4 y = normed(row[j], r, reinterpret_cast<const float4*>(task.pre_w)[j]);
      put(task.pre_y, j, y);
      row[j] = sum_of(at_row(task.a)[j], y);
      put(task.sum, j, row[j]);
    }
  } else {
#pragma unroll 4
    for (int j = lane; j < d / 4; j += 32) {
      const float4 a = at_row(task.a)[j];
      row[j] = task.b == nullptr ? a : sum_of(a, at_row(task.b)[j]);
      put(task.sum, j, row[j]);
    }
  }
  __syncwarp();
  const float r = inverse_rms_of_warp(reinterpret_cast<const float*>(row), d, task.eps);
#pragma unroll 2
  for (int begin = 0; begin < d; begin += 256) {
    const int j = begin + 8 * lane;
    float x[8] = {}, w[8];
    if (j < d) {
      read_8(reinterpret_cast<const float*>(row) + j, x);
      read_8(task.w + j, w);
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = (x[i] * r) * w[i];
      if (task.y != nullptr) write_8(task.y + at + j, x);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (task.halves != nullptr) task.halves[at + j + i] = narrowed(x[i], task.is_bf16);
      }
    }
    if (task.q.q != nullptr) quantise_8<kBlock>(x, j < d, task.q, at + j);
  }
}

constexpr int kHeadWarps = 4;

// One warp a head of one token: the queries', then the keys', then the values'.
__global__ void heads_kernel(HeadsTask task) {
  extern __shared__ float memory[];
  let_next_start();
  const CacheView& cache = task.cache;
  const int64_t n_slots = task.n_heads + 2 * cache.n_kv_heads;
  const int64_t warp = int64_t{blockIdx.x} * kHeadWarps + threadIdx.x / 32;
  if (warp >= task.n_tokens * n_slots) return;
  const int64_t token = warp / n_slots, slot = warp % n_slots;
  const int head_dim = static_cast<int>(cache.head_dim), lane = threadIdx.x % 32;
  float* row = memory + threadIdx.x / 32 * head_dim;
  const bool is_q = slot < task.n_heads, is_k = !is_q && slot < task.n_heads + cache.n_kv_heads;
  const int64_t head = is_q ? slot : (slot - task.n_heads) % cache.n_kv_heads;
  const int64_t at = (token * (is_q ? task.n_heads : cache.n_kv_heads) + head) * head_dim;
  wait_for_previous();
  const float* from = (is_q ? task.q : is_k ? task.k : task.v) + at;
  for (int j = lane; j < head_dim; j += 32) row[j] = from[j];
  __syncwarp();
  const int64_t position = task.positions[token];
  if (is_q || is_k) {
    const float* w = is_q ? task.q_norm : task.k_norm;
    float* normed = is_q ? task.q_normed : task.k_normed;
    float* rotated = is_q ? task.q_rotated : task.k_rotated;
    rotate_head(row, head_dim, w, is_q ? task.q_eps : task.k_eps, task.rope, task.table + position * task.rope.dim,
                normed == nullptr ? nullptr : normed + at, rotated == nullptr ? nullptr : rotated + at);
    if (is_q) return;
  }
  std::byte* page = page_of(table_of(cache, task.sequences[token]), position / kCachePage);
  for (int begin = 0; begin < head_dim; begin += 32) {
    const int j = begin + lane;
    const bool inside = j < head_dim;
    const Place place = is_k ? key_place(cache, page, head, position, j) : value_place(cache, page, head, position, j);
    put(is_k ? cache.type_k : cache.type_v, inside ? row[j] : 0.0f, inside, place);
  }
}

// The same for heads of kRuns * 32 elements that are rotated whole, by halves, over a cache in half precision: a lane has
// every 32nd element, so both of a pair, and no memory is shared.
template <int kRuns>
__global__ void __launch_bounds__(32 * kHeadWarps) lanes_heads_kernel(const __grid_constant__ HeadsTask task) {
  let_next_start();
  constexpr int kHeadDim = 32 * kRuns, kHalf = kRuns / 2;
  const CacheView& cache = task.cache;
  const int n_heads = static_cast<int>(task.n_heads), n_kv_heads = static_cast<int>(cache.n_kv_heads),
            n_slots = n_heads + 2 * n_kv_heads, lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(blockIdx.x * kHeadWarps + threadIdx.x / 32), token = warp / n_slots,
            slot = warp % n_slots;
  if (token >= static_cast<int>(task.n_tokens)) return;
  const bool is_q = slot < n_heads, is_k = !is_q && slot < n_heads + n_kv_heads;
  const int head = is_q ? slot : (slot - n_heads) % n_kv_heads;
  const int64_t at = (int64_t{token} * (is_q ? n_heads : n_kv_heads) + head) * kHeadDim + lane;
  const int position = task.positions[token];
  const auto each = [&](auto use) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) use(i);
  };
  wait_for_previous();
  const float* from = (is_q ? task.q : is_k ? task.k : task.v) + at;
  float x[kRuns];
  each([&](int i) { x[i] = from[32 * i]; });
  if (is_q || is_k) {
    const float* angles = task.table + int64_t{position} * kHeadDim + lane;
    float angle[kRuns];  // cosines, sines
    each([&](int i) { angle[i] = angles[32 * i]; });
    if (const float* w = is_q ? task.q_norm : task.k_norm; w != nullptr) {
      float sum = 0.0f;
      each([&](int i) { sum = num::fma(x[i], x[i], sum); });
      sum = __shfl_sync(kWholeWarp, fold_lanes(sum), 0);
      const float r = 1.0f / sqrtf(sum / static_cast<float>(kHeadDim) + (is_q ? task.q_eps : task.k_eps));
      each([&](int i) { x[i] = (x[i] * r) * w[32 * i + lane]; });
      if (float* normed = is_q ? task.q_normed : task.k_normed; normed != nullptr) {
        each([&](int i) { normed[at + 32 * i] = x[i]; });
      }
    }
#pragma unroll
    for (int i = 0; i < kHalf; ++i) rotate_pair(x[i], x[i + kHalf], angle[i], angle[i + kHalf]);
    if (float* rotated = is_q ? task.q_rotated : task.k_rotated; rotated != nullptr) {
      each([&](int i) { rotated[at + 32 * i] = x[i]; });
    }
    if (is_q) return;
  }
  std::byte* page = page_of(table_of(cache, task.sequences[token]), position / kCachePage);
  each([&](int i) {
    const int j = 32 * i + lane;
    const Place place = is_k ? key_place(cache, page, head, position, j) : value_place(cache, page, head, position, j);
    *reinterpret_cast<uint16_t*>(place.element) = rounded_half(x[i]);
  });
}

constexpr int kThreads = 256;

__device__ uint2 as_halves(const float* x) {
  return {rounded_half(x[0]) | uint32_t{rounded_half(x[1])} << 16,
          rounded_half(x[2]) | uint32_t{rounded_half(x[3])} << 16};
}

// The same for the usual heads, which are bare and rotated whole, over a cache in half precision; a lane has four pairs
// of a head: eight neighbours, or two runs of four that are half a head apart.
template <bool kInterleaved>
__global__ void plain_heads_kernel(const __grid_constant__ HeadsTask task) {
  let_next_start();
  const CacheView& cache = task.cache;
  const int n_heads = static_cast<int>(task.n_heads), n_kv_heads = static_cast<int>(cache.n_kv_heads),
            head_dim = static_cast<int>(cache.head_dim);
  const int of_head = head_dim / 8, of_token = (n_heads + 2 * n_kv_heads) * of_head;
  const int item = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int token = item / of_token, slot = item % of_token / of_head, pair = 4 * (item % of_head);
  if (token >= static_cast<int>(task.n_tokens)) return;
  const bool is_q = slot < n_heads, is_k = !is_q && slot < n_heads + n_kv_heads;
  const int head = is_q ? slot : (slot - n_heads) % n_kv_heads;
  const int64_t at = (int64_t{token} * (is_q ? n_heads : n_kv_heads) + head) * head_dim;
  const int first = kInterleaved ? 2 * pair : pair, second = first + (kInterleaved ? 4 : head_dim / 2);
  const int position = task.positions[token];
  std::byte* page = page_of(table_of(cache, task.sequences[token]), position / kCachePage);
  float x[8], cos[4], sin[4];
  if (is_q || is_k) {
    const float* angles = task.table + int64_t{position} * head_dim + pair;
    read_4(angles, cos);
    read_4(angles + head_dim / 2, sin);
  }
  wait_for_previous();
  const float* from = (is_q ? task.q : is_k ? task.k : task.v) + at;
  read_4(from + first, x);
  read_4(from + second, x + 4);
  if (is_q || is_k) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      rotate_pair(x[kInterleaved ? 2 * i : i], x[kInterleaved ? 2 * i + 1 : i + 4], cos[i], sin[i]);
  }
  if (is_q) {
    write_4(task.q_rotated + at + first, x);
    write_4(task.q_rotated + at + second, x + 4);
    return;
  }
#pragma unroll
  for (int run = 0; run < 2; ++run) {
    const int j = run == 0 ? first : second;
    const Place place = is_k ? key_place(cache, page, head, position, j) : value_place(cache, page, head, position, j);
    *reinterpret_cast<uint2*>(place.element) = as_halves(x + 4 * run);
  }
}

// The n elements of y from `at` on, which are of one head: its segments, ascending.
template <int n>
__device__ void merge_elements(const AttentionTask& task, int64_t at, float* y) {
  const int64_t head_dim = task.cache.head_dim, j = at % head_dim, head = at / head_dim % task.n_heads,
                i_tile = at / head_dim / task.n_heads;
  const TokenTile tile = task.tiles[i_tile];
  const int64_t n_segments = tile.position / ops::kAttentionSegment -
                             ops::first_visible(tile.position, task.window) / ops::kAttentionSegment + 1;
  const float* partials = task.partials + (i_tile * task.n_heads + head) * task.n_segments * (head_dim + 2);
  float m = partials[0], l = partials[1], o[n];
#pragma unroll
  for (int e = 0; e < n; ++e) o[e] = partials[2 + j + e];
  for (int64_t i = 1; i < n_segments; ++i) {
    const float* next = partials + i * (head_dim + 2);
    const float m_both = next[0] > m ? next[0] : m;
    const float a = num::exp(m - m_both), b = num::exp(next[0] - m_both);
    l = num::fma(l, a, next[1] * b);
#pragma unroll
    for (int e = 0; e < n; ++e) o[e] = num::fma(o[e], a, next[2 + j + e] * b);
    m = m_both;
  }
#pragma unroll
  for (int e = 0; e < n; ++e) y[e] = o[e] / l;
}

// Tiles of one token each, in the order of the tokens; a lane takes 8 neighbouring elements.
template <int kBlock>
__global__ void merge_rows_kernel(AttentionTask task, int64_t n, quant::Activations out) {
  let_next_start();
  const int64_t at = 8 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  wait_for_previous();
  float y[8] = {};
  if (at < n) {
    if (task.cache.head_dim % 8 == 0) {
      merge_elements<8>(task, at, y);
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) merge_elements<1>(task, at + e, y + e);
    }
    if (task.y != nullptr) write_8(task.y + at, y);
  }
  quantise_8<kBlock>(y, at < n, out, at);
}

dim3 grid_of(int64_t n) { return dim3(static_cast<unsigned>((n + 8 * kThreads - 1) / (8 * kThreads))); }

}  // namespace

void norm_rows(OpKernel by, const NormTask& task, const Queue& queue) {
  if (task.n_rows == 0) return;
  if (by == OpKernel::norm_warps) {
    const auto kernel = task.q.kind == Activation::a256 ? norm_warps_kernel<256> : norm_warps_kernel<32>;
    const size_t bytes = kNormWarps * static_cast<size_t>(task.d) * sizeof(float);
    if (bytes > 48 * 1024) require(allow_shared(kernel, bytes), "shared memory");
    launch(queue, kernel, dim3(static_cast<unsigned>((task.n_rows + kNormWarps - 1) / kNormWarps)), 32 * kNormWarps,
           bytes, task);
    return;
  }
  const int threads = by == OpKernel::norm_small_blocks ? 256 : 1024;  // a multiple of every block of activations
  take_decode_cut(norm_kernel);
  launch(queue, norm_kernel, dim3(static_cast<unsigned>(task.n_rows)), threads,
         static_cast<size_t>(task.d) * sizeof(float), task);
}

void heads(OpKernel by, const HeadsTask& task, const Queue& queue) {
  if (task.n_tokens == 0) return;
  const int64_t n_warps = task.n_tokens * (task.n_heads + 2 * task.cache.n_kv_heads);
  if (by == OpKernel::heads_plain) {
    const int64_t n_lanes = n_warps * task.cache.head_dim / 8;
    const auto kernel = task.rope.interleaved ? plain_heads_kernel<true> : plain_heads_kernel<false>;
    launch(queue, kernel, dim3(static_cast<unsigned>((n_lanes + kThreads - 1) / kThreads)), kThreads, 0, task);
    return;
  }
  const dim3 grid(static_cast<unsigned>((n_warps + kHeadWarps - 1) / kHeadWarps));
  if (by == OpKernel::heads_lanes) {
    const auto kernel = task.cache.head_dim == 64    ? lanes_heads_kernel<2>
                        : task.cache.head_dim == 128 ? lanes_heads_kernel<4>
                                                     : lanes_heads_kernel<8>;
    launch(queue, kernel, grid, 32 * kHeadWarps, 0, task);
    return;
  }
  launch(queue, heads_kernel, grid, 32 * kHeadWarps,
         static_cast<size_t>(kHeadWarps * task.cache.head_dim) * sizeof(float), task);
}

void merge_rows(const AttentionTask& task, const quant::Activations& out, const Queue& queue) {
  const int64_t n = task.n_tiles * out.k;
  if (n == 0) return;
  const auto kernel = out.kind == Activation::a256 ? merge_rows_kernel<256> : merge_rows_kernel<32>;
  launch(queue, kernel, grid_of(n), kThreads, 0, task, n, out);
}

}  // namespace assay::backend::cuda
