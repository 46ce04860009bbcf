// See rank.h. A logit and its token are one key of 64 bits, so that the order is that of whole numbers: blocks of
// threads keep the k largest keys of their part of a row, pass after pass, until one part is left. The largest alone
// needs no sorting: blocks join theirs in memory, and the last one has the row's. That one knows the next run's token,
// so it makes the token's row of the table, too.
#include <type_traits>

#include "backend/cuda/linear/eight_elements.cuh"
#include "backend/cuda/rows/rank.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kPart = 4096;               // keys that a block of threads sorts
constexpr int kPartOfOne = 4096;          // keys of which it finds the largest
constexpr int kAllowedWords = 4096 / 32;  // of either part
constexpr uint64_t kBad = ~uint64_t{0};   // a NaN or +infinity: before every number
constexpr int32_t kNoToken = ops::kNone;

// Descending by the logit, then ascending by the token; 0 for minus infinity.
__device__ uint64_t key_of(float logit, int token) {
  const uint32_t bits = logit == 0.0f ? 0u : __float_as_uint(logit);  // both zeros are equal
  if (!(logit < __uint_as_float(0x7F800000u))) return kBad;
  if (bits == 0xFF800000u) return 0;
  const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(token));
}

__device__ float logit_of(uint64_t key) {  // but for a zero's sign
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float((ordered >> 31) != 0 ? ordered & 0x7FFFFFFFu : ~ordered);
}

__device__ int32_t token_of(uint64_t key) {
  return key == 0 || key == kBad ? kNoToken : static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

struct RankTask {
  const float* logits = nullptr;   // [n_rows, width], of the first pass; later passes read keys
  const uint64_t* keys = nullptr;  // [n_rows, n]
  uint64_t* kept =
      nullptr;  // [n_rows, parts, k]; of the largest alone [n_rows, 2]: the largest so far, how many blocks have come
  AllowedWords allowed;  // of the first pass
  RankOutputs out;       // of the last pass
  int32_t n = 0, width = 0, k = 0;
};

// Which of a part's entries count, for its block of threads, before it waits for the kernel ahead: from the host they
// take their time. Of no row all, which nobody looks at then.
__device__ void read_allowed(const AllowedWords& allowed, int begin, uint32_t (&words)[kAllowedWords]) {
  const int t = static_cast<int>(threadIdx.x), i = begin / 32 + t;
  if (allowed.places == nullptr || t >= kAllowedWords) return;
  const int32_t place = allowed.places[blockIdx.y];
  words[t] = place == ops::kNone || i >= allowed.n_words ? ~0u : allowed.words[int64_t{place} * allowed.n_words + i];
}
__device__ bool counts(const RankTask& task, const uint32_t (&words)[kAllowedWords], int i_in_part) {
  return task.allowed.places == nullptr || (words[i_in_part / 32] >> (i_in_part % 32) & 1) != 0;
}

__device__ uint64_t key_at(const RankTask& task, int i) {
  if (i >= task.n) return 0;
  return task.keys == nullptr ? key_of(task.logits[int64_t{blockIdx.y} * task.width + i], i)
                              : task.keys[int64_t{blockIdx.y} * task.n + i];
}

__device__ void put(const RankTask& task, int i, uint64_t key, bool bad, int64_t row_of_best) {
  const int32_t token = bad ? kNoToken : token_of(key);
  float logit = token == kNoToken ? 0.0f : logit_of(key);
  if (token != kNoToken && logit == 0.0f) logit = task.logits[int64_t{blockIdx.y} * task.width + token];
  const Handover& next = task.out.next;
  if (next.round != nullptr) __threadfence_system();  // who finds the token finds that a wait was too long
  auto* to = reinterpret_cast<volatile unsigned long long*>(task.out.best + row_of_best * task.k + i);
  *to = static_cast<unsigned long long>(__float_as_uint(logit)) << 32 | static_cast<uint32_t>(token);
  if (next.tokens == nullptr) return;
  if (next.round != nullptr && blockIdx.y == 0) ++*next.round;
  next.tokens[blockIdx.y] = max(token, 0);
  ++next.positions[blockIdx.y];
  ++next.tiles[blockIdx.y].position;
}

// By one thread of each block of threads: whether it is the last one of its row; then best is the row's.
__device__ bool join(const RankTask& task, uint64_t& best) {
  auto* largest = reinterpret_cast<unsigned long long*>(task.kept + 2 * int64_t{blockIdx.y});
  atomicMax(largest, static_cast<unsigned long long>(best));
  __threadfence();
  if (atomicAdd(largest + 1, 1ull) != gridDim.x - 1) return false;
  __threadfence();
  best = atomicExch(largest, 0ull);
  largest[1] = 0;
  return true;
}

struct NoRows {};

// Eight: of the table whose rows it makes (eight_elements.cuh), or NoRows.
template <class Eight>
__global__ void __launch_bounds__(kThreads) largest_kernel(RankTask task) {
  __shared__ uint64_t of_warps[kThreads / 32];
  __shared__ uint32_t allowed[kAllowedWords];
  __shared__ bool is_last;
  let_next_start();
  const int t = static_cast<int>(threadIdx.x), begin = static_cast<int>(blockIdx.x) * kPartOfOne;
  read_allowed(task.allowed, begin, allowed);
  wait_for_previous();
  const Handover& next = task.out.next;
  const int64_t row =
      next.tokens == nullptr ? blockIdx.y : blockIdx.y + (next.positions[blockIdx.y] % 2) * next.n_rows_max;
  const float* logits = task.logits + int64_t{blockIdx.y} * task.width;
  float* kept = next.tokens == nullptr ? nullptr : next.logits + row * task.width;
  constexpr int kEach = kPartOfOne / kThreads;
  float own[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    own[e] = begin + e * kThreads + t < task.width ? logits[begin + e * kThreads + t] : 0.0f;
  if (task.allowed.places != nullptr) __syncthreads();
  uint64_t best = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = begin + e * kThreads + t;
    if (i >= task.width) continue;
    if (counts(task, allowed, e * kThreads + t)) best = max(best, key_of(own[e], i));
    if (kept != nullptr) kept[i] = own[e];
  }
  const auto n_threads = static_cast<int64_t>(gridDim.x * gridDim.y) * kThreads;
  for (int64_t i = (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * kThreads + t; i < next.sums.n; i += n_threads) {
    next.sums.begin[i] = make_uint4(kNoSum, kNoSum, kNoSum, kNoSum);
  }
  const auto of_warp = [](uint64_t x) {
#pragma unroll
    for (int width = 16; width >= 1; width /= 2) x = max(x, __shfl_xor_sync(kWholeWarp, x, width));
    return x;
  };
  best = of_warp(best);
  if (t % 32 == 0) of_warps[t / 32] = best;
  __syncthreads();
  if (t < 32) best = of_warp(of_warps[t]);
  if (t == 0) {
    is_last = join(task, best);
    of_warps[0] = best;
  }
  __syncthreads();
  if (!is_last) return;
  best = of_warps[0];
  if (t == 0) put(task, 0, best, best == kBad, row);
  if constexpr (!std::is_same_v<Eight, NoRows>) {
    const TokenRows& rows = task.out.rows;
    float* y = rows.y + blockIdx.y * rows.table.cols;
    // From the last thread on: the first has the rest to write.
    for (int64_t i = kThreads - 1 - t; i < rows.table.cols / 8; i += kThreads) {
      decode_eight<Eight>(rows.table.parts, rows.table.cols, max(token_of(best), 0), i, true, rows.scale, y);
    }
  }
}

__global__ void __launch_bounds__(kThreads) sort_kernel(RankTask task) {
  __shared__ uint64_t keys[kPart];
  __shared__ uint32_t allowed[kAllowedWords];
  let_next_start();
  const int t = static_cast<int>(threadIdx.x), begin = static_cast<int>(blockIdx.x) * kPart;
  read_allowed(task.allowed, begin, allowed);
  wait_for_previous();
  if (task.allowed.places != nullptr) __syncthreads();
  for (int i = t; i < kPart; i += kThreads) keys[i] = counts(task, allowed, i) ? key_at(task, begin + i) : 0;
  __syncthreads();
  for (int size = 2; size <= kPart; size *= 2) {  // bitonic, descending
    for (int step = size / 2; step > 0; step /= 2) {
      for (int pair = t; pair < kPart / 2; pair += kThreads) {
        const int a = 2 * pair - (pair & (step - 1)), b = a + step;
        const uint64_t x = keys[a], y = keys[b];
        if ((x < y) == ((a & size) == 0)) keys[a] = y, keys[b] = x;
      }
      __syncthreads();
    }
  }
  if (task.out.best == nullptr) {
    for (int i = t; i < task.k; i += kThreads)
      task.kept[(int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * task.k + i] = keys[i];
    return;
  }
  const bool bad = keys[0] == kBad;
  for (int i = t; i < task.k; i += kThreads) {
    if (i > 0) put(task, i, keys[i], bad, blockIdx.y);
  }
  __threadfence_system();
  __syncthreads();
  if (t == 0) put(task, 0, keys[0], bad, blockIdx.y);
}

int64_t parts_of(int64_t n, int64_t k) {
  const int64_t part = k == 1 ? kPartOfOne : kPart;
  return (n + part - 1) / part;
}

}  // namespace

int64_t rank_scratch_words(int64_t n_rows, int64_t width, int64_t k) {
  return k == 1 ? 2 * n_rows
                : 2 * n_rows * parts_of(width, k) *
                      k;  // two passes' keys by turns, of which the first pass leaves the most
}

void rank_rows(const RankInputs& in, uint64_t* scratch, const RankOutputs& out, const Queue& queue) {
  const int64_t n_rows = in.n_rows, width = in.width, k = in.k;
  if (n_rows == 0) return;
  RankTask task;
  task.logits = in.logits;
  task.allowed = in.allowed;
  task.width = static_cast<int32_t>(width);
  task.k = static_cast<int32_t>(k);
  const auto grid = [&](int64_t parts) { return dim3(static_cast<unsigned>(parts), static_cast<unsigned>(n_rows)); };
  if (k == 1) {
    task.n = task.width;
    task.kept = scratch;
    task.out = out;
    const auto start = [&]<class Eight>(Eight) {
      take_decode_cut(largest_kernel<Eight>);
      launch(queue, largest_kernel<Eight>, grid(parts_of(width, k)), kThreads, 0, task);
    };
    if (out.rows.y == nullptr) return start(NoRows{});
    return EightFormats::visit_type(out.rows.table.dtype, start);
  }
  uint64_t* const places[2] = {scratch, scratch + rank_scratch_words(n_rows, width, k) / 2};
  int64_t n = width;
  for (int pass = 0; n > 0; ++pass) {
    const int64_t parts = parts_of(n, k);
    task.n = static_cast<int32_t>(n);
    task.kept = places[pass % 2];
    if (parts == 1) task.out = out;
    launch(queue, sort_kernel, grid(parts), kThreads, 0, task);
    task.keys = task.kept;
    task.allowed = {};
    n = parts == 1 ? 0 : parts * k;
  }
}

}  // namespace assay::backend::cuda
