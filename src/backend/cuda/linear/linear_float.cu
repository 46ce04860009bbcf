// Float weights by Lanes32 in 8 chunks. Four neighbouring lanes take a chunk of a row, eight such groups a row: lane g
// of a group holds the lanes 8 g .. 8 g + 7 of the contract, so it loads 8 neighbouring weights at a time and nothing
// crosses lanes before the fold.
//
//   block of threads: 4 rows, a warp each; 1 token, or 4 by blockIdx.y
//
//   lane of the warp     0    1    2     3   | 4 .. 7  | .. | 28 .. 31
//   chunk of the row             0           |    1    | .. |    7
//   of a block of 32    0-7  8-15 16-23 24-31               read from device memory into registers
//   registers            8 sums a token: the lane's 8 of Lanes32
//   at the end           shuffles 2, 1 and then inside the lane: the fold of a chunk; shuffles 4, 8, 16: the tree;
//                        lane 0 adds the bias and writes y [token][row]
#include "backend/cuda/linear/float_row.cuh"
#include "backend/cuda/linear/linear.h"
#include "num/lanes.h"

namespace assay::backend::cuda {
namespace {

struct FloatTask {
  const void* w = nullptr;
  int64_t n_rows = 0, cols = 0;
  const float* x = nullptr;
  int64_t n_tokens = 0;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_width = 0;
  bool aligned = false;  // rows of w and x begin at multiples of 16 bytes
};

__device__ void load_8(const float* p, bool aligned, int64_t n, float (&out)[8]) {
  if (aligned && n >= 8) {
    const float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = i < n ? p[i] : 0.0f;
}
template <class W>
__device__ void load_8(const W* p, bool aligned, int64_t n, float (&out)[8]) {
  if (aligned && n >= 8) return widen_8<W>(*reinterpret_cast<const uint4*>(p), out);
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = i < n ? widened(p[i]) : 0.0f;
}

constexpr int kWarps = 4;

template <class W, int kTokens>
__global__ void float_kernel(FloatTask task) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= task.n_rows) return;
  const int64_t first_token = int64_t{blockIdx.y} * kTokens;
  const int lane = threadIdx.x % 32, chunk = lane / 4;
  const int64_t n_blocks = (task.cols + 31) / 32;
  const W* w = static_cast<const W*>(task.w) + row * task.cols;
  float sum[kTokens][8] = {};
  const int64_t end = (chunk + 1) * n_blocks / 8;
#pragma unroll 4
  for (int64_t b = chunk * n_blocks / 8; b < end; ++b) {
    const int64_t j = 32 * b + 8 * (lane % 4), n = task.cols - j;
    if (n <= 0) continue;
    float weight[8];
    load_8(w + j, task.aligned, n, weight);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (first_token + t >= task.n_tokens) break;
      float x[8];
      load_8(task.x + (first_token + t) * task.cols + j, task.aligned, n, x);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i < n) sum[t][i] = num::fma(weight[i], x[i], sum[t][i]);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float y = fold_and_tree(sum[t]);
    if (lane == 0 && first_token + t < task.n_tokens) {
      task.y[(first_token + t) * task.y_width + row] = task.bias == nullptr ? y : y + task.bias[row];
    }
  }
}

template <class W>
void launch(const FloatTask& task, cudaStream_t stream) {
  constexpr int kTokensMany = 4;
  const auto rows = static_cast<unsigned>((task.n_rows + kWarps - 1) / kWarps);
  if (task.n_tokens == 1) {
    float_kernel<W, 1><<<rows, 32 * kWarps, 0, stream>>>(task);
  } else {
    const auto tiles = static_cast<unsigned>((task.n_tokens + kTokensMany - 1) / kTokensMany);
    float_kernel<W, kTokensMany><<<dim3(rows, tiles), 32 * kWarps, 0, stream>>>(task);
  }
}

}  // namespace

void linear_float(const FloatRows& rows, int64_t cols, const float* x, int64_t n_tokens, cudaStream_t stream) {
  const FloatTask task{rows.w, rows.n_rows, cols, x, n_tokens, rows.bias, rows.y, rows.y_width, cols % 8 == 0};
  if (rows.dtype == tensor::DType::F32) launch<float>(task, stream);
  if (rows.dtype == tensor::DType::F16) launch<__half>(task, stream);
  if (rows.dtype == tensor::DType::BF16) launch<Bf16>(task, stream);
}

}  // namespace assay::backend::cuda
