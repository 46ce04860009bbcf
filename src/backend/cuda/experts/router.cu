// See router.h. A cluster of eight blocks; a warp has one row of the router's and holds it in registers before the row
// of activations is there. As in linear_float.cu four lanes have a chunk, a lane 8 of the 32 lanes of its sums. The
// logits meet in the first block's shared memory, whose first warp makes the routes.
//
//   block 0 .. 7   warp 0 .. 15   row 16 block + warp ──> logits[row] of block 0 ──> routes
#include <cooperative_groups.h>

#include <array>

#include "backend/cuda/experts/router.h"
#include "backend/cuda/linear/float_row.cuh"
#include "backend/cuda/rows/route.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kBlocks = 8, kWarps = 16, kRows = kBlocks * kWarps;
constexpr int kSteps = 8;  // of 32 columns, of a chunk at most

__global__ void __launch_bounds__(32 * kWarps) router_kernel(const __grid_constant__ RouterTask task) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ float memory[];
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
  cluster.sync();  // all blocks are there
  wait_for_previous();
  float sum[8] = {};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (s >= n) continue;
    const auto* from = reinterpret_cast<const float4*>(task.x + first + 32 * s);
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
  cluster.sync();
  if (blockIdx.x == 0 && warp == 0) route_by_warp(task.route, logits, task.route.y, memory);
#endif
}

}  // namespace

bool router_serves(int64_t n_experts, int64_t cols) {
  cudaFuncAttributes attributes{};
  return n_experts <= kRows && cols % 32 == 0 && cols <= 8 * 32 * kSteps &&
         cudaFuncGetAttributes(&attributes, router_kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

void router(const RouterTask& task, const Queue& queue) {
  take_decode_cut(router_kernel);
  std::array<cudaLaunchAttribute, 2> attributes = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kBlocks, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(32 * kWarps);
  config.dynamicSmemBytes = route_shared_bytes(task.route);
  config.stream = queue.stream;
  config.attrs = attributes.data();
  config.numAttrs = queue.overlap ? 2 : 1;
  cudaLaunchKernelEx(&config, router_kernel, task);
}

}  // namespace assay::backend::cuda
