// Float weights by Lanes32 in 8 chunks for a few tokens (see linear.h, linear_float). A block of threads makes 16 rows of up to 8 tokens, a
// warp one of the 8 chunks of them all, a lane of the warp a lane of the contract: so a weight is loaded and widened once for all tokens.
// Register i of a lane belongs to the output whose number is i with some bits turned over, other bits in every lane: at each step of the
// fold a lane then keeps the lower half of its registers and hands on the upper half, without asking which lane it is.
#include "backend/cuda/float_few.h"

#include "backend/cuda/float_row.cuh"
#include "num/lanes.h"
#include "quant/activations.h"

namespace assay::backend::cuda {
namespace {

constexpr int kRows = 16, kChunks = 8;

__device__ float widened(float x) { return x; }

// A lane keeps half of its outputs and adds what the lane kWidth away has of them.
template <int kLeft, int kWidth, int kOutputs>
__device__ void fold_half(float (&sum)[kOutputs]) {
#pragma unroll
  for (int i = 0; i < kLeft; ++i) sum[i] = sum[i] + __shfl_xor_sync(kWholeWarp, sum[i + kLeft], kWidth);
}

// grid: 16 rows, kTokens tokens.
template <class W, int kTokens>
__global__ void __launch_bounds__(32 * kChunks) few_kernel(const W* weights, int n_rows, int cols, const float* x, int n_tokens, const float* bias,
                                                           float* y, int64_t y_width) {
  constexpr int kOutputs = kRows * kTokens, kKept = kOutputs / 32;
  __shared__ float chunk_sums[kChunks][kTokens][kRows];
  const int chunk = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row_0 = static_cast<int>(blockIdx.x) * kRows, token_0 = static_cast<int>(blockIdx.y) * kTokens;
  const int turned_row = lane / 2, turned_token = lane % 2 * (kTokens / 2);
  const W* w[kRows];
  const float* row_x[kTokens];
#pragma unroll
  for (int r = 0; r < kRows; ++r) w[r] = weights + int64_t{min(row_0 + (r ^ turned_row), n_rows - 1)} * cols + lane;
#pragma unroll
  for (int t = 0; t < kTokens; ++t) row_x[t] = x + int64_t{min(token_0 + (t ^ turned_token), n_tokens - 1)} * cols + lane;
  float sum[kOutputs];
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) sum[i] = 0.0f;
  const int n_blocks = cols / 32, end = static_cast<int>(quant::chunk_begin(chunk + 1, n_blocks));
#pragma unroll 2
  for (int block = static_cast<int>(quant::chunk_begin(chunk, n_blocks)); block < end; ++block) {
    W loaded[kRows];
    float tokens[kTokens];
#pragma unroll
    for (int r = 0; r < kRows; ++r) loaded[r] = w[r][32 * block];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) tokens[t] = row_x[t][32 * block];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float weight = widened(loaded[r]);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) sum[r * kTokens + t] = num::fma(weight, tokens[t], sum[r * kTokens + t]);
    }
  }
  fold_half<kOutputs / 2, 16>(sum);
  fold_half<kOutputs / 4, 8>(sum);
  fold_half<kOutputs / 8, 4>(sum);
  fold_half<kOutputs / 16, 2>(sum);
  fold_half<kOutputs / 32, 1>(sum);
#pragma unroll
  for (int i = 0; i < kKept; ++i) chunk_sums[chunk][i ^ turned_token][turned_row] = sum[i];
  __syncthreads();
  const int token = static_cast<int>(threadIdx.x) / kRows, r = static_cast<int>(threadIdx.x) % kRows;
  if (token >= kTokens || token_0 + token >= n_tokens || row_0 + r >= n_rows) return;
  float c[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) c[i] = chunk_sums[i][token][r];
  const float all = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
  y[(token_0 + token) * y_width + row_0 + r] = bias == nullptr ? all : all + bias[row_0 + r];
}

template <class W, int kTokens>
void start(const FloatRows& rows, int64_t cols, const float* x, int64_t n_tokens, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((rows.n_rows + kRows - 1) / kRows), static_cast<unsigned>((n_tokens + kTokens - 1) / kTokens));
  few_kernel<W, kTokens><<<grid, 32 * kChunks, 0, stream>>>(static_cast<const W*>(rows.w), static_cast<int>(rows.n_rows), static_cast<int>(cols),
                                                            x, static_cast<int>(n_tokens), rows.bias, rows.y, rows.y_width);
}
template <class W>
void start_for(const FloatRows& rows, int64_t cols, const float* x, int64_t n_tokens, cudaStream_t stream) {
  if (n_tokens <= 2) return start<W, 2>(rows, cols, x, n_tokens, stream);
  if (n_tokens <= 4) return start<W, 4>(rows, cols, x, n_tokens, stream);
  start<W, 8>(rows, cols, x, n_tokens, stream);
}

}  // namespace

void linear_float_few(const FloatRows& rows, int64_t cols, const float* x, int64_t n_tokens, cudaStream_t stream) {
  if (rows.dtype == tensor::DType::F32) start_for<float>(rows, cols, x, n_tokens, stream);
  if (rows.dtype == tensor::DType::F16) start_for<__half>(rows, cols, x, n_tokens, stream);
  if (rows.dtype == tensor::DType::BF16) start_for<Bf16>(rows, cols, x, n_tokens, stream);
}

}  // namespace assay::backend::cuda
