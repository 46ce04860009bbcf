// Experts of float weights, summed as linear_float.cu does: a warp a row, four lanes a chunk of it.
#include "backend/cuda/experts/expert_pick.cuh"
#include "backend/cuda/linear/float_row.cuh"
#include "num/lanes.h"

namespace assay::backend::cuda {
namespace {

constexpr int kFloatExpertWarps = 4;

struct FloatExpertTask {
  ExpertPick pick;
  const void* w;  // of experts first .. first + n - 1
  int64_t first, n, d_in, d_out, blocks_of_pair;
  const float *x, *bias;
  float* y;
};

__device__ float as_float(float x) { return x; }
__device__ float as_float(__half x) { return widened(x); }
__device__ float as_float(Bf16 x) { return widened(x); }

template <class W>
__global__ void float_expert_kernel(FloatExpertTask task) {
  const int64_t pair = blockIdx.x / task.blocks_of_pair,
                at_row = blockIdx.x % task.blocks_of_pair * kFloatExpertWarps + threadIdx.x / 32;
  const int64_t expert = task.pick.expert_of(static_cast<uint32_t>(pair));
  if (at_row >= task.d_out || expert < task.first || expert >= task.first + task.n) return;
  const int lane = threadIdx.x % 32, chunk = lane / 4;
  const int64_t n_blocks = (task.d_in + 31) / 32, row = task.pick.row_begin(expert) + at_row;
  const W* w = static_cast<const W*>(task.w) + (row - task.first * task.pick.rows_per_expert) * task.d_in;
  const float* x = task.x + task.pick.row_of_x(static_cast<uint32_t>(pair)) * task.d_in;
  float sum[8] = {};
  const int64_t end = (chunk + 1) * n_blocks / 8;
  for (int64_t b = chunk * n_blocks / 8; b < end; ++b) {
    const int64_t j = 32 * b + 8 * (lane % 4), n = task.d_in - j;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < n) sum[i] = num::fma(as_float(w[j + i]), x[j + i], sum[i]);
    }
  }
  const float y = fold_and_tree(sum);
  if (lane == 0) task.y[pair * task.d_out + at_row] = task.bias == nullptr ? y : y + task.bias[row];
}

template <class W>
void start_float_experts(const FloatExpertTask& task, int64_t n_pairs, const Queue& queue) {
  float_expert_kernel<W>
      <<<static_cast<unsigned>(n_pairs * task.blocks_of_pair), 32 * kFloatExpertWarps, 0, queue.stream>>>(task);
}

}  // namespace

void expert_linear_float(const ExpertTask& t, tensor::DType dtype, const void* w, int64_t first_expert,
                         int64_t n_experts, const Queue& queue) {
  if (t.n_pairs == 0) return;
  const FloatExpertTask task{ExpertPick(t),
                             w,
                             first_expert,
                             n_experts,
                             t.d_in,
                             t.d_out,
                             (t.d_out + kFloatExpertWarps - 1) / kFloatExpertWarps,
                             t.x,
                             t.bias,
                             t.y};
  if (dtype == tensor::DType::F32) start_float_experts<float>(task, t.n_pairs, queue);
  if (dtype == tensor::DType::F16) start_float_experts<__half>(task, t.n_pairs, queue);
  if (dtype == tensor::DType::BF16) start_float_experts<Bf16>(task, t.n_pairs, queue);
}

}  // namespace assay::backend::cuda
