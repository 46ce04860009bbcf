// See router.h. A cluster of 16 blocks, small enough to start beside the blocks of the kernel ahead; a warp has one row of the router's and holds it in registers before the row
// of activations is there, which every block makes for itself. As in linear_float.cu four lanes have a chunk, a lane 8
// of the 32 lanes of its sums. The logits meet in the first block's shared memory, whose first warp makes the routes;
// the second block makes the row's integers.
//
//   block 0 .. 15   warp 0 .. 7   row 8 block + warp ──> logits[row] of block 0 ──> routes
#include <cooperative_groups.h>

#include <array>
#include <stdexcept>
#include <type_traits>

#include "backend/cuda/experts/router.h"
#include "backend/cuda/linear/float_row.cuh"
#include "backend/cuda/rows/norm_row.cuh"
#include "backend/cuda/rows/route.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kBlocks = 16, kWarps = 8, kRows = kBlocks * kWarps;
constexpr int kSteps = 8;  // of 32 columns, of a chunk at most
constexpr int kThreads = 32 * kWarps, kColumns = 8 * 32 * kSteps;
static_assert(kRows == kRouterRowsMax && kRows <= 32 * kOwnMax && kColumns == kRouterColumnsMax);
constexpr int kPadding = 4;  // floats behind each chunk of a row, so that the lanes of two chunks read different banks

// The row of activations: as it is, and with its chunks apart.
struct Rows {
  float *plain, *padded;
  int n_blocks;
  __device__ void put(int j, float x) const {
    plain[j] = x, padded[j + kPadding * ((8 * (j / 32 + 1) - 1) / n_blocks)] = x;
  }
};

[[maybe_unused]] __device__ void make_row(const RouterTask& task, const Rows& rows,
                                          const float (&w)[kColumns / kThreads]) {
  __shared__ float broadcast;
  const NormTask& norm = task.norm;
  if (norm.w == nullptr) {
    for (int j = threadIdx.x; j < task.cols; j += kThreads) rows.put(j, task.x[j]);
    return;
  }
  const bool writes = blockIdx.x == 0;
  for (int j = threadIdx.x; j < task.cols; j += kThreads) {
    rows.plain[j] = norm.b == nullptr ? norm.a[j] : norm.a[j] + norm.b[j];
    if (writes && norm.sum != nullptr) norm.sum[j] = rows.plain[j];
  }
  __syncthreads();
  const float r = inverse_rms(rows.plain, task.cols, norm.eps, &broadcast);
#pragma unroll
  for (int i = 0; i < kColumns / kThreads; ++i) {
    const int j = static_cast<int>(threadIdx.x) + i * kThreads;
    if (j >= task.cols) continue;
    const float y = (rows.plain[j] * r) * w[i];
    if (writes && norm.y != nullptr) norm.y[j] = y;
    rows.put(j, y);
  }
}

[[maybe_unused]] __device__ void make_integers(const quant::Activations& q, const float* row, int cols) {
  if (q.q == nullptr) return;
  q.kind == quant::Activation::a256 ? quantise_row<256>(row, cols, q, 0) : quantise_row<32>(row, cols, q, 0);
}

template <ops::Gating gating>
__global__ void __launch_bounds__(kThreads) router_kernel(const __grid_constant__ RouterTask task) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) float memory[];
  __shared__ float logits[kRows];
  const auto cluster = cooperative_groups::this_cluster();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunk = lane / 4;
  const int row = static_cast<int>(blockIdx.x) * kWarps + warp, n_blocks = task.cols / 32;
  const int begin = chunk * n_blocks / 8, n = row < task.route.n_experts ? (chunk + 1) * n_blocks / 8 - begin : 0;
  const int first = 32 * begin + 8 * (lane % 4);
  let_next_start();
  float4 w[kSteps][2] = {};
  const float* weights = task.w + int64_t{row} * task.cols + first;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (s >= n) continue;
    const auto* from = reinterpret_cast<const float4*>(weights + 32 * s);
    w[s][0] = from[0], w[s][1] = from[1];
  }
  float of_norm[kColumns / kThreads] = {};
#pragma unroll
  for (int i = 0; i < kColumns / kThreads; ++i) {
    const int j = static_cast<int>(threadIdx.x) + i * kThreads;
    if (task.norm.w != nullptr && j < task.cols) of_norm[i] = task.norm.w[j];
  }
  const Rows rows{memory, memory + task.cols, n_blocks};
  cluster.sync();  // all blocks are there
  wait_for_previous();
  make_row(task, rows, of_norm);
  __syncthreads();
  float sum[8] = {};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (s >= n) continue;
    const auto* from = reinterpret_cast<const float4*>(rows.padded + kPadding * chunk + first + 32 * s);
    const float4 x[2] = {from[0], from[1]};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[4 * i] = num::fma(w[s][i].x, x[i].x, sum[4 * i]);
      sum[4 * i + 1] = num::fma(w[s][i].y, x[i].y, sum[4 * i + 1]);
      sum[4 * i + 2] = num::fma(w[s][i].z, x[i].z, sum[4 * i + 2]);
      sum[4 * i + 3] = num::fma(w[s][i].w, x[i].w, sum[4 * i + 3]);
    }
  }
  float y = fold_and_tree(sum);
  if (lane == 0 && row < task.route.n_experts) {
    if (task.bias != nullptr) y = y + task.bias[row];
    *cluster.map_shared_rank(logits + row, 0) = y;
    if (task.logits != nullptr) task.logits[row] = y;
  }
  cluster.barrier_arrive();
  if (blockIdx.x == 1) make_integers(task.norm.q, rows.plain, task.cols);
  cluster.barrier_wait();
  float* of_routes = rows.padded + task.cols + 8 * kPadding;
  if (blockIdx.x == 0 && warp == 0)
    route_by_warp<true>(task.route, std::integral_constant<ops::Gating, gating>(), logits, task.route.y, of_routes);
#endif
}

auto kernel_for(ops::Gating gating) {
  using enum ops::Gating;
  switch (gating) {
    case softmax: return router_kernel<softmax>;
    case sigmoid: return router_kernel<sigmoid>;
    case softmax_of_chosen: return router_kernel<softmax_of_chosen>;
    case sqrt_softplus: return router_kernel<sqrt_softplus>;
    case sparse_mixer: return router_kernel<sparse_mixer>;
  }
  throw std::logic_error("a gating that no router knows");
}

}  // namespace

void router(const RouterTask& task, const Queue& queue) {
  const auto kernel = kernel_for(task.route.gating);
  take_decode_cut(kernel);
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess,
          "clusters of 16 blocks");
  std::array<cudaLaunchAttribute, 2> attributes = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kBlocks, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes =
      static_cast<size_t>(2 * task.cols + 8 * kPadding) * sizeof(float) + route_shared_bytes(task.route);
  config.stream = queue.stream;
  config.attrs = attributes.data();
  config.numAttrs = queue.overlap ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, task);
}

}  // namespace assay::backend::cuda
