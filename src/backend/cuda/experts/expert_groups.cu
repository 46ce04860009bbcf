// See expert_groups.h. The order is a counting sort: a block of threads an expert counts the pairs of all experts, and
// places its own.
#include <algorithm>

#include "backend/cuda/experts/expert_groups.h"
#include "backend/cuda/experts/expert_pick.cuh"
#include "backend/cuda/kernels/expert_table.h"
#include "backend/cuda/runtime/warp.cuh"
#include "backend/cuda/tiles/mma_tile.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kGroupingWarps = 32, kGroupingThreads = 32 * kGroupingWarps, kGatherWarps = 4;
constexpr int64_t kTileTokensMin = 32;

struct OrderTask {
  ExpertPick pick;
  int32_t n_pairs, n_experts, tile_tokens;
  ExpertScratch to;
};

__device__ int sum_of_warp(int x) {
#pragma unroll
  for (int width = 16; width >= 1; width /= 2) x += __shfl_xor_sync(kWholeWarp, x, width);
  return x;
}

// Where block `own` begins in the order and among the tiles, by what all experts have.
struct OrderPlace {
  int place = 0, tile = 0;  // behind those of the experts ahead
  int n_tiles = 0;          // of all
};
__device__ int tiles_of_expert(int n_pairs, int tile_tokens) { return (n_pairs + tile_tokens - 1) / tile_tokens; }
__device__ OrderPlace order_place(const int32_t* count, int own, int n_experts, int tile_tokens, int lane) {
  OrderPlace at;
  for (int i = lane; i < n_experts; i += 32) {
    const int n_tiles = tiles_of_expert(count[i], tile_tokens);
    at.n_tiles += n_tiles;
    if (i < own) at.place += count[i], at.tile += n_tiles;
  }
  at.place = sum_of_warp(at.place), at.tile = sum_of_warp(at.tile), at.n_tiles = sum_of_warp(at.n_tiles);
  return at;
}

__global__ void __launch_bounds__(kGroupingThreads) order_pairs_kernel(const __grid_constant__ OrderTask task) {
  extern __shared__ int32_t count[];  // pairs of every expert
  __shared__ int32_t own_of_warp[kGroupingWarps];
  __shared__ OrderPlace shared_place;
  let_next_start();
  const int own = static_cast<int>(blockIdx.x), t = static_cast<int>(threadIdx.x), warp = t / 32, lane = t % 32;
  for (int i = t; i < task.n_experts; i += kGroupingThreads) count[i] = 0;
  __syncthreads();
  wait_for_previous();
  const int share = (task.n_pairs + kGroupingThreads - 1) / kGroupingThreads * 32;  // of a warp
  const int begin = warp * share, end = min(begin + share, task.n_pairs);
  // Several pairs of a lane at once, for each is a way to the second-level cache.
  const auto for_each_pair = [&](auto use) {
    constexpr int kAtOnce = 4;
    for (int base = begin; base < end; base += 32 * kAtOnce) {
      int expert[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int pair = base + 32 * i + lane;
        expert[i] = pair < end ? task.pick.expert_of(static_cast<uint32_t>(pair)) : -1;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) use(base + 32 * i + lane, expert[i]);
    }
  };
  int n_own = 0;
  for_each_pair([&](int, int expert) {
    if (expert >= 0) atomicAdd(count + expert, 1);
    n_own += __popc(__ballot_sync(kWholeWarp, expert == own));
  });
  if (lane == 0) own_of_warp[warp] = n_own;
  __syncthreads();
  const int tokens = task.tile_tokens;
  if (warp == 0) {
    const OrderPlace at = order_place(count, own, task.n_experts, tokens, lane);
    if (lane == 0) shared_place = at;
  }
  __syncthreads();
  const OrderPlace at = shared_place;
  int place = at.place;
  for (int i = 0; i < warp; ++i) place += own_of_warp[i];
  for_each_pair([&](int pair, int expert) {
    const uint32_t all = __ballot_sync(kWholeWarp, expert == own);
    if (expert == own) task.to.pairs[place + __popc(all & ((1u << lane) - 1))] = pair;
    place += __popc(all);
  });
  const int n_own_pairs = count[own];
  for (int i = t; i < tiles_of_expert(n_own_pairs, tokens); i += kGroupingThreads) {
    const int first = i * tokens;
    task.to.tiles[at.tile + i] = {own, at.place + first, at.place + min(first + tokens, n_own_pairs)};
  }
  if (own == 0 && t == 0) *task.to.n_tiles = at.n_tiles;
}

struct GatherRowsTask {
  const int32_t* pairs;
  int32_t n_pairs;
  ExpertPick pick;
  quant::Activations from, to;
};

// By one warp.
template <class T>
__device__ void copy_row(const void* from, void* to, int64_t from_row, int64_t to_row, int n) {
  const T* source = static_cast<const T*>(from) + from_row * n;
  T* target = static_cast<T*>(to) + to_row * n;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) % 32; i < n; i += 32) target[i] = source[i];
}

__global__ void __launch_bounds__(32 * kGatherWarps) gather_rows_kernel(const __grid_constant__ GatherRowsTask task) {
  let_next_start();
  const int place = static_cast<int>(blockIdx.x * kGatherWarps + threadIdx.x / 32);
  if (place >= task.n_pairs) return;
  wait_for_previous();
  const int64_t row = task.pick.row_of_x(static_cast<uint32_t>(task.pairs[place]));
  const int k = static_cast<int>(task.to.k);  // `from` may have the rows of all heads as one
  const bool superblocks = task.from.kind == quant::Activation::a256;
  const int n_blocks = k / (superblocks ? 256 : 32), n_groups = k / (superblocks ? 16 : 32);
  copy_row<uint4>(task.from.q, task.to.q, row, place, k / 16);
  copy_row<float>(task.from.d, task.to.d, row, place, n_blocks);
  copy_row<int16_t>(task.from.q_sums, task.to.q_sums, row, place, n_groups);
  if (task.from.planes == 1) return;
  copy_row<uint4>(task.from.l, task.to.l, row, place, k / 16);
  copy_row<int16_t>(task.from.l_sums, task.to.l_sums, row, place, n_groups);
}

int64_t experts_of(const ExpertTask& task) { return task.w->rows / task.rows_per_expert; }

void order_pairs(const ExpertTask& task, int32_t tile_tokens, const ExpertScratch& scratch, const Queue& queue) {
  const int64_t n_experts = experts_of(task);
  const OrderTask order{ExpertPick(task), static_cast<int32_t>(task.n_pairs), static_cast<int32_t>(n_experts),
                        tile_tokens, scratch};
  launch(queue, order_pairs_kernel, dim3(static_cast<unsigned>(n_experts)), kGroupingThreads,
         static_cast<size_t>(n_experts) * sizeof(int32_t), order);
}

}  // namespace

ExpertMemory::ExpertMemory(std::span<const ExpertNeed> needs, int planes, const Hopper& hopper) {
  if (hopper.n_processors == 0) return;
  int64_t n_pairs = 0, n_tiles = 0;
  size_t x_bytes = 0;
  for (const ExpertNeed& need : needs) {
    if (need.n_pairs < kGroupedPairsOfExpertMin * need.n_experts) continue;
    n_pairs = std::max(n_pairs, need.n_pairs);
    n_tiles = std::max(n_tiles, need.n_pairs / kTileTokensMin + need.n_experts);
    x_bytes = std::max(x_bytes, quant::activations_bytes(need.kind, planes, need.n_pairs, need.d_in));
  }
  if (n_pairs == 0) return;
  const size_t words = static_cast<size_t>(n_pairs + 1) * sizeof(int32_t);
  order_ = DeviceBuffer(words + static_cast<size_t>(n_tiles) * sizeof(ExpertTile), "the order of tokens by experts");
  x_ = DeviceBuffer(x_bytes, "activations by experts");
  view_.n_tiles = order_.as<int32_t>();
  view_.pairs = view_.n_tiles + 1;
  view_.tiles = reinterpret_cast<ExpertTile*>(order_.data() + words);
  view_.x = x_.data();
}

void expert_linear_groups(const ExpertTask& task, const quant::Activations& x, int columns,
                          const ExpertScratch& scratch, const ExpertsMade& made, const Hopper& hopper,
                          const Queue& queue) {
  if (!made.order) order_pairs(task, columns / x.planes, scratch, queue);
  MmaTasks tasks;
  tasks.x = quant::carve(x.kind, x.planes, task.n_pairs, task.d_in, scratch.x);
  if (!made.x || !made.order) {
    const GatherRowsTask gather{scratch.pairs, static_cast<int32_t>(task.n_pairs), ExpertPick(task), x, tasks.x};
    launch(queue, gather_rows_kernel, dim3(static_cast<unsigned>((task.n_pairs + kGatherWarps - 1) / kGatherWarps)),
           32 * kGatherWarps, 0, gather);
  }
  tasks.n = 1;
  tasks.task[0] = {task.w->parts, static_cast<int32_t>(task.w->rows), 0, task.bias, task.y};
  tasks.n_blocks = static_cast<int32_t>(task.d_in / x.block()), tasks.n_tokens = static_cast<int32_t>(task.n_pairs);
  tasks.experts = {scratch.pairs,
                   scratch.tiles,
                   scratch.n_tiles,
                   static_cast<int32_t>((task.d_out + kTileRows - 1) / kTileRows),
                   static_cast<int32_t>(task.rows_per_expert),
                   static_cast<int32_t>(task.first_row),
                   static_cast<int32_t>(task.d_out)};
  x.kind == quant::Activation::a256 ? expert_wgmma_256(task.w->dtype, tasks, columns, hopper, queue)
                                    : expert_wgmma_32(task.w->dtype, tasks, hopper, queue);
}

}  // namespace assay::backend::cuda
