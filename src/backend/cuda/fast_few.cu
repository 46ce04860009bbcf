// See fast_linear.h. A block of threads makes 16 rows of up to 8 kTiles tokens, a warp one of the 8 chunks of them all: weights are the
// instruction's 16 rows, tokens its 8 columns, those that are not there are zeros. Weights come 8 bytes a lane, straight from memory: within
// the 16 elements that one instruction adds, elements may change places, if weights and activations do it alike.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "backend/cuda/fast_linear.h"
#include "backend/cuda/launch.cuh"
#include "quant/activations.h"

namespace assay::backend::cuda {
namespace {

constexpr int kRows = 16, kChunks = 8, kThreads = 32 * kChunks;
constexpr int kAhead = 8;  // steps of 16 elements that are loaded at a time

struct FewRun {
  const uint16_t* w = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_width = 0;
  int32_t n_rows = 0, first_block = 0;
};
struct FewTask {
  FewRun run[kFastRowsMax];
  const float* x = nullptr;
  int32_t n_runs = 0, cols = 0, n_tokens = 0;
};

struct F16 {
  __device__ static uint32_t rounded(float a, float b) {
    const __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  __device__ static void multiply(float (&sum)[4], const uint2& low, const uint2& high, const uint2& x) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(x.x), "r"(x.y));
  }
};
struct BF16 {
  __device__ static uint32_t rounded(float a, float b) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  __device__ static void multiply(float (&sum)[4], const uint2& low, const uint2& high, const uint2& x) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(x.x), "r"(x.y));
  }
};

// Weights of some steps: of the lane's row and of the row 8 further.
struct Ahead {
  uint2 low[kAhead], high[kAhead];
  __device__ void load(const uint16_t* row, const uint16_t* row_8, int step, int end) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (step + i >= end) continue;
      low[i] = __ldcs(reinterpret_cast<const uint2*>(row + 16 * (step + i)));
      high[i] = __ldcs(reinterpret_cast<const uint2*>(row_8 + 16 * (step + i)));
    }
  }
};

// grid: 16 rows, 8 kTiles tokens.
template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads) few_kernel(const __grid_constant__ FewTask task) {
  __shared__ float chunk_sums[kChunks][8 * kTiles][kRows + 1];
  let_next_start();
  const int chunk = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4;
  int i_run = 0;
  while (i_run + 1 < task.n_runs && static_cast<int>(blockIdx.x) >= task.run[i_run + 1].first_block) ++i_run;
  const FewRun& run = task.run[i_run];
  const int row_0 = (static_cast<int>(blockIdx.x) - run.first_block) * kRows, token_0 = static_cast<int>(blockIdx.y) * 8 * kTiles;
  const int n_blocks = task.cols / 32, at = lane % 4 * 4;
  const int begin = 2 * static_cast<int>(quant::chunk_begin(chunk, n_blocks)), end = 2 * static_cast<int>(quant::chunk_begin(chunk + 1, n_blocks));
  const uint16_t* row = run.w + int64_t{min(row_0 + group, run.n_rows - 1)} * task.cols + at;
  const uint16_t* row_8 = run.w + int64_t{min(row_0 + group + 8, run.n_rows - 1)} * task.cols + at;
  Ahead now, next;
  now.load(row, row_8, begin, end);
  wait_for_previous();
  const float* x = task.x + int64_t{token_0 + group} * task.cols + at;
  float sum[kTiles][4] = {};
  for (int step = begin; step < end; step += kAhead) {
    next.load(row, row_8, step + kAhead, end);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (step + i >= end) break;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
        if (token_0 + 8 * tile + group < task.n_tokens) v = *reinterpret_cast<const float4*>(x + int64_t{8 * tile} * task.cols + 16 * (step + i));
        T::multiply(sum[tile], now.low[i], now.high[i], {T::rounded(v.x, v.y), T::rounded(v.z, v.w)});
      }
    }
    now = next;
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int e = 0; e < 4; ++e) chunk_sums[chunk][8 * tile + lane % 4 * 2 + e % 2][group + e / 2 * 8] = sum[tile][e];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * 8 * kTiles; i += kThreads) {
    const int token = i / kRows, r = i % kRows;
    if (token_0 + token >= task.n_tokens || row_0 + r >= run.n_rows) continue;
    float c[kChunks];
#pragma unroll
    for (int j = 0; j < kChunks; ++j) c[j] = chunk_sums[j][token][r];
    const float all = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
    run.y[(token_0 + token) * run.y_width + row_0 + r] = run.bias == nullptr ? all : all + run.bias[row_0 + r];
  }
}

template <class T, int kTiles>
void start(const FewTask& task, int n_blocks, const Queue& queue) {
  const int n = (task.n_tokens + 8 * kTiles - 1) / (8 * kTiles);
  launch(queue, few_kernel<T, kTiles>, dim3(static_cast<unsigned>(n_blocks), static_cast<unsigned>(n)), kThreads, 0, task);
}
template <class T>
void start_for(const FewTask& task, int n_blocks, const Queue& queue) {
  if (task.n_tokens <= 8) return start<T, 1>(task, n_blocks, queue);
  if (task.n_tokens <= 16) return start<T, 2>(task, n_blocks, queue);
  start<T, 4>(task, n_blocks, queue);
}

// Two elements a thread.
template <class T>
__global__ void round_kernel(const float2* x, int64_t n_pairs, uint32_t* out) {
  let_next_start();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  wait_for_previous();
  if (i >= n_pairs) return;
  const float2 v = x[i];
  out[i] = T::rounded(v.x, v.y);
}

}  // namespace

void fast_few(std::span<const FloatRows> runs, int64_t cols, const float* x, int64_t n_tokens, const Queue& queue) {
  FewTask task;
  task.x = x;
  task.cols = static_cast<int32_t>(cols);
  task.n_tokens = static_cast<int32_t>(n_tokens);
  int32_t n_blocks = 0;
  for (const FloatRows& run : runs) {
    task.run[task.n_runs++] = {static_cast<const uint16_t*>(run.w), run.bias, run.y, run.y_width, static_cast<int32_t>(run.n_rows), n_blocks};
    n_blocks += static_cast<int32_t>((run.n_rows + kRows - 1) / kRows);
  }
  if (n_blocks == 0 || n_tokens == 0) return;
  runs.front().dtype == tensor::DType::F16 ? start_for<F16>(task, n_blocks, queue) : start_for<BF16>(task, n_blocks, queue);
}

void round_to(tensor::DType dtype, const float* x, int64_t n, void* halves, const Queue& queue) {
  const auto kernel = dtype == tensor::DType::F16 ? round_kernel<F16> : round_kernel<BF16>;
  const int64_t n_pairs = n / 2;
  launch(queue, kernel, dim3(static_cast<unsigned>((n_pairs + 255) / 256)), 256, 0, reinterpret_cast<const float2*>(x), n_pairs,
         static_cast<uint32_t*>(halves));
}

}  // namespace assay::backend::cuda
