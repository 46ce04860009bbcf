// See expert_token.h. Rows as decode/gemv_rows.cuh has them.
//
//   gate   a warp has row r of gate and row r of up of one expert, so the activation is at hand with both
//   sum    a warp has row r of down of eight experts, four lanes each; their sum is a chain through its lanes.
//          One block a multiprocessor, which makes the integers of all ranks for itself in shared memory: making them
//          again is cheaper than one more kernel
#include <algorithm>
#include <type_traits>

#include "backend/cuda/decode/gemv_rows.cuh"
#include "backend/cuda/experts/expert_pick.cuh"
#include "backend/cuda/experts/expert_token.h"
#include "backend/cuda/linear/quantise.cuh"
#include "backend/cuda/rows/usual_gate.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace assay::backend::cuda {
namespace {

struct GateTask {
  GemvTask gate, up;
  ExpertPick pick;
  quant::Activations x;
  int32_t d_out;
  bool routes_are_settled;
  float* y;
};

// As many as registers allow: the more rows are under way, the less their latencies count.
template <class Format, int kPlanes>
constexpr int kGateBlocksPerSm = kPlanes == 1 && std::is_same_v<Format, GemvQ4_K> ? 6 : kGemvBlocksPerSm;

// When the next kernel starts, and how routes are read: as in expert_gemv.cu.
template <class Format, int kPlanes, ops::ActivationFunction activation>
__global__ void __launch_bounds__(32 * kGemvWarps, kGateBlocksPerSm<Format, kPlanes>)
    gate_kernel(const __grid_constant__ GateTask task) {
  if (!task.routes_are_settled) wait_for_previous();
  let_next_start();
  const int n_thread_blocks = task.gate.n_thread_blocks, rank = static_cast<int>(blockIdx.x) / n_thread_blocks;
  const auto first = static_cast<int>(task.pick.row_begin(task.pick.settled_expert_of(static_cast<uint32_t>(rank))));
  const int row_0 =
      first + (static_cast<int>(blockIdx.x) % n_thread_blocks) * kGemvWarps + static_cast<int>(threadIdx.x / 32);
  const int64_t to = int64_t{rank} * task.d_out - first;
  const auto with_bias = [&](const GemvTask& of, int row, float y) {
    if (of.bias != nullptr) y = y + of.bias[row];
    if (of.y != nullptr && threadIdx.x % 32 == 0) of.y[to + row] = y;
    return y;
  };
  float gate = 0.0f;
  run_rows<Format, kPlanes, 1>(GemvMatrices<2>{{&task.gate.w, &task.up.w}, first + task.d_out, task.gate.n_blocks},
                               task.x, static_cast<int>(task.pick.row_of_x(static_cast<uint32_t>(rank))), 1, row_0,
                               n_thread_blocks * kGemvWarps, [&](int matrix, int, int row, float y) {
                                 if (matrix == 0) {
                                   gate = usual_activation(activation, with_bias(task.gate, row, y));
                                   return;
                                 }
                                 const float product = gate * with_bias(task.up, row, y);
                                 if (threadIdx.x % 32 == 0) task.y[to + row] = product;
                               });
}

template <class Format, int kPlanes>
void launch_gate(const ExpertGateTask& task, const quant::Activations& x, const Queue& queue) {
  const ExpertTask& t = task.gate;
  const auto n_blocks = static_cast<int32_t>(t.d_in / x.block());
  const int64_t room = int64_t{queue.n_multiprocessors} * kGateBlocksPerSm<Format, kPlanes>,
                whole = (t.d_out + kGemvWarps - 1) / kGemvWarps,
                share = std::clamp<int64_t>(room / t.n_pairs, 1, whole);
  const auto of = [&](const ExpertTask& product) {
    return GemvTask{.w = product.w->parts,
                    .n_blocks = n_blocks,
                    .n_thread_blocks = static_cast<int32_t>(share),
                    .bias = product.bias,
                    .y = product.y};
  };
  const GateTask on_device{of(task.gate),        of(task.up), ExpertPick(t), x, static_cast<int32_t>(t.d_out),
                           t.routes_are_settled, task.y};
  with_usual(task.activation, [&](auto function) {
    const auto kernel = gate_kernel<Format, kPlanes, decltype(function)::value>;
    take_decode_cut(kernel);
    launch(queue, kernel, dim3(static_cast<unsigned>(t.n_pairs * share)), 32 * kGemvWarps, 0, on_device);
  });
}

constexpr int kSumThreads = 512, kSumWarps = kSumThreads / 32;

struct SumTask {
  GemvTask down;
  ExpertPick pick;
  const float *x, *weights;
  int32_t n_used, d_in, d_out;
  bool routes_are_settled;
  float* y;
};

// The integers of all ranks' rows in shared memory.
template <int kPlanes>
struct RankIntegers {
  static constexpr int kMax = kExpertTokenElementsMax;  // elements of all ranks
  alignas(16) int8_t planes[kPlanes][kMax];
  alignas(4) int16_t sums[kPlanes][kMax / 16];
  float d[kMax / 256];

  __device__ quant::Activations view(int n_rows, int k) {
    return {quant::Activation::a256, kPlanes, n_rows, k, planes[0], planes[kPlanes - 1], d, sums[0], sums[kPlanes - 1]};
  }
};

template <class Format, int kPlanes>
__global__ void __launch_bounds__(kSumThreads, 1) sum_kernel(const __grid_constant__ SumTask task) {
  __shared__ RankIntegers<kPlanes> integers;
  if (!task.routes_are_settled) wait_for_previous();
  let_next_start();
  // A unit: so many rows of every rank's expert. Of those past the end the last is read, and left out.
  const int n_used = task.n_used, unit_rows = kShortRows / n_used, group = static_cast<int>(threadIdx.x % 32 / 4);
  const int rank = group % n_used, step = static_cast<int>(gridDim.x) * kSumWarps * unit_rows;
  const auto first = static_cast<int>(task.pick.row_begin(task.pick.settled_expert_of(static_cast<uint32_t>(rank))));
  const int row_0 = (static_cast<int>(blockIdx.x) * kSumWarps + static_cast<int>(threadIdx.x / 32)) * unit_rows;
  const auto own_of = [&](int row) { return first + min(row + group / n_used, task.d_out - 1); };
  const quant::Activations x = integers.view(n_used, task.d_in);
  const auto make_integers = [&] {
    const int n = n_used * task.d_in;
#pragma unroll 1
    for (int at = 8 * static_cast<int>(threadIdx.x); at - 8 * static_cast<int>(threadIdx.x % 32) < n;
         at += 8 * kSumThreads) {
      float own[8];
      read_8(task.x + at, own);
      quantise_8<256>(own, true, x, at);
    }
    __syncthreads();
  };
  ShortRow<Format> down(task.down.w, task.down.n_blocks);
  if (row_0 < task.d_out) down.begin(own_of(row_0));
  wait_for_previous();
  make_integers();
  const float weight = task.weights == nullptr ? 1.0f : task.weights[rank];
#pragma unroll 1
  for (int row = row_0; row < task.d_out; row += step) {
    const int own = own_of(row);
    float y = down.template multiply<kPlanes>(x, rank);
    if (row + step < task.d_out) down.begin(own_of(row + step));
    if (task.down.bias != nullptr) y = y + task.down.bias[own];
    const int row_of_y = row + group / n_used;
    const bool is_first_lane = threadIdx.x % 4 == 0 && row_of_y < task.d_out;
    if (task.down.y != nullptr && is_first_lane) task.down.y[int64_t{rank} * task.d_out + row_of_y] = y;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = 0; i < n_used; ++i) {
      const int from = 4 * (group - rank + i);
      const float of_rank = __shfl_sync(kWholeWarp, y, from), by = __shfl_sync(kWholeWarp, weight, from);
      if (task.weights == nullptr) {
        sum = i == 0 ? of_rank : sum + of_rank;
      } else {
        sum = i == 0 ? by * of_rank : num::fma(by, of_rank, sum);
      }
    }
    if (is_first_lane && rank == 0) task.y[row_of_y] = sum;
  }
}

}  // namespace

void expert_token_gate(const ExpertGateTask& task, const quant::Activations& x, const Queue& queue) {
  GemvFormats256::visit_type(task.gate.w->dtype, [&]<class Format>(Format) {
    x.planes == 2 ? launch_gate<Format, 2>(task, x, queue) : launch_gate<Format, 1>(task, x, queue);
  });
}

void expert_token_sum(const ExpertSumTask& task, int planes, const Queue& queue) {
  const ExpertTask& t = task.down;
  const GemvTask down{.w = t.w->parts, .n_blocks = static_cast<int32_t>(t.d_in / 256), .bias = t.bias, .y = t.y};
  const SumTask on_device{down,
                          ExpertPick(t),
                          t.x,
                          task.weights,
                          t.n_used,
                          static_cast<int32_t>(t.d_in),
                          static_cast<int32_t>(t.d_out),
                          t.routes_are_settled,
                          task.y};
  const int64_t rows_of_block = int64_t{kSumWarps} * (kShortRows / t.n_used);
  const int64_t n_blocks = std::min<int64_t>((t.d_out + rows_of_block - 1) / rows_of_block, queue.n_multiprocessors);
  GemvFormats256::visit_type(t.w->dtype, [&]<class Format>(Format) {
    const auto kernel = planes == 2 ? sum_kernel<Format, 2> : sum_kernel<Format, 1>;
    take_decode_cut(kernel);
    launch(queue, kernel, dim3(static_cast<unsigned>(n_blocks)), kSumThreads, 0, on_device);
  });
}

}  // namespace assay::backend::cuda
