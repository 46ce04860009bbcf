// See row_kernels.h.
#include <cuda_fp16.h>

#include "backend/cuda/attention/heads.cuh"
#include "backend/cuda/linear/block_load.cuh"
#include "backend/cuda/linear/eight_elements.cuh"
#include "backend/cuda/linear/formats.h"
#include "backend/cuda/rows/row_kernels.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/math.h"
#include "quant/float.h"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }
__device__ int64_t thread_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// Row rows[i], or row_begin + i, of a matrix decoded to y, times scale where the op has one.
struct RowsTask {
  Parts parts;
  int64_t cols = 0;
  const int32_t* rows = nullptr;  // of tokens
  int64_t row_begin = 0, n_rows = 0;
  bool repeats = false;  // row_begin for all
  bool scaled = false;
  float scale = 1.0f;
  float* y = nullptr;

  __device__ int64_t row(int64_t i) const { return rows != nullptr ? rows[i] : row_begin + (repeats ? 0 : i); }
  // Behind rows of tokens the next kernel may start when this one's wait is over, no earlier: kernels read the batch
  // ahead of their own wait. A matrix that is decoded the next one may fetch before it waits, so it does not start
  // ahead.
  __device__ void wait() const {
    wait_for_previous();
    if (rows != nullptr) let_next_start();
  }
};

// Eight neighbouring elements a thread.
template <class Eight>
__global__ void decode_eight_kernel(RowsTask task) {
  const int64_t i = thread_index(), of_row = task.cols / 8, i_row = i / of_row;
  task.wait();
  if (i_row >= task.n_rows) return;
  decode_eight<Eight>(task.parts, task.cols, task.row(i_row), i - i_row * of_row, task.scaled, task.scale,
                      task.y + i_row * task.cols);
}

// A block a thread, for formats without kernels of their own.
template <class Format, int kBlock>
__global__ void decode_block_kernel(RowsTask task) {
  const int64_t i = thread_index(), of_row = task.cols / kBlock, i_row = i / of_row;
  task.wait();
  if (i_row >= task.n_rows) return;
  const auto block = load_block_of<typename Format::Block>(task.parts, task.row(i_row) * of_row + i % of_row);
  float values[kBlock];
  if constexpr (kBlock == 32) {
    quant::decode_32<typename Format::Block>(reinterpret_cast<const std::byte*>(&block), values);
  } else {
    quant::decode_256<typename Format::Block>(reinterpret_cast<const std::byte*>(&block), values);
  }
  for (int j = 0; j < kBlock; ++j) task.y[i * kBlock + j] = task.scaled ? values[j] * task.scale : values[j];
}

// Floats in rows of any length.
__device__ float widen(const float* x) { return *x; }
__device__ float widen(const __half* x) { return __half2float(*x); }
struct Bf16 {
  uint16_t bits;
};
__device__ float widen(const Bf16* x) { return num::bf16_to_float(x->bits); }

template <class T>
__global__ void widen_kernel(RowsTask task) {
  const int64_t i = thread_index(), i_row = i / task.cols;
  task.wait();
  if (i_row >= task.n_rows) return;
  const float value =
      widen(reinterpret_cast<const T*>(task.parts.base[0]) + task.row(i_row) * task.cols + i % task.cols);
  task.y[i] = task.scaled ? value * task.scale : value;
}

void decode(UnpackKernel by, const Matrix& m, RowsTask task, const Queue& queue) {
  using tensor::DType;
  task.parts = m.parts;
  task.cols = m.cols;
  const auto start = [&](auto kernel, int64_t elements_each) {
    const int64_t n = task.n_rows * (m.cols / elements_each);
    if (task.rows != nullptr) take_decode_cut(kernel);
    if (n > 0) launch(queue, kernel, blocks_for(n), kThreads, 0, task);
  };
  switch (by) {
    case UnpackKernel::eights:
      return EightFormats::visit_type(m.dtype, [&]<class Eight>(Eight) { start(decode_eight_kernel<Eight>, 8); });
    case UnpackKernel::floats:
      return m.dtype == DType::F32   ? start(widen_kernel<float>, 1)
             : m.dtype == DType::F16 ? start(widen_kernel<__half>, 1)
                                     : start(widen_kernel<Bf16>, 1);
    case UnpackKernel::blocks:
      return visit_blocks(m.dtype, [&]<class F, class N>(F, N) { start(decode_block_kernel<F, N::value>, N::value); });
  }
}

// One warp a run.
__global__ void rms_norm_kernel(const float* x, const float* w, float eps, int64_t d, int64_t n_runs, float* y) {
  const int64_t run = thread_index() / 32;
  const int lane = threadIdx.x % 32;
  if (run >= n_runs) return;
  x += run * d;
  y += run * d;
  float sum = 0.0f;
#pragma unroll 8
  for (int64_t j = lane; j < d; j += 32) sum = num::fma(x[j], x[j], sum);
  sum = __shfl_sync(kWholeWarp, fold_lanes(sum), 0);
  const float r = 1.0f / sqrtf(sum / static_cast<float>(d) + eps);
#pragma unroll 8
  for (int64_t j = lane; j < d; j += 32) y[j] = w == nullptr ? x[j] * r : (x[j] * r) * w[j];
}

// One thread a pair; the elements beyond dim are pairs of their own.
__global__ void rope_kernel(const float* x, const float* table, const int32_t* positions, int64_t n_tokens, RopeShape s,
                            float* y) {
  const int64_t half = s.dim / 2, per_head = half + (s.head_dim - s.dim);
  const int64_t i = thread_index();
  if (i >= n_tokens * s.n_heads * per_head) return;
  const int64_t head = i / per_head, pair = i % per_head;
  const int64_t token = head / s.n_heads;
  x += head * s.head_dim;
  y += head * s.head_dim;
  if (pair >= half) {
    y[s.dim + pair - half] = x[s.dim + pair - half];
    return;
  }
  const float* angles = table + positions[token] * s.dim;
  const float cos = angles[pair], sin = angles[half + pair];
  const int64_t a = s.interleaved ? 2 * pair : pair, b = s.interleaved ? 2 * pair + 1 : pair + half;
  float x_a = x[a], x_b = x[b];
  rotate_pair(x_a, x_b, cos, sin);
  y[a] = x_a, y[b] = x_b;
}

__global__ void add_kernel(const float* a, const float* b, int64_t n, float* y) {
  const int64_t i = thread_index();
  if (i < n) y[i] = a[i] + b[i];
}

__global__ void select_kernel(const float* x, const int32_t* rows, int64_t n_rows, int64_t width, float* y) {
  const int64_t i = thread_index();
  if (i < n_rows * width) y[i] = x[rows[i / width] * width + i % width];
}

__global__ void cut_kernel(const uint8_t* blocks, int64_t n_blocks, int block_bytes, Parts parts) {
  const int64_t i = thread_index();
  if (i >= n_blocks * block_bytes) return;
  const int64_t block = i / block_bytes;
  int at = static_cast<int>(i % block_bytes);
  int part = 0;
  while (at >= parts.bytes[part]) at -= parts.bytes[part++];
  const_cast<uint8_t*>(parts.base[part])[block * parts.bytes[part] + at] = blocks[i];
}

}  // namespace

void embed(UnpackKernel by, const Matrix& table, const int32_t* tokens, int64_t n_tokens, float scale, float* y,
           const Queue& queue) {
  decode(by, table, {.rows = tokens, .n_rows = n_tokens, .scaled = true, .scale = scale, .y = y}, queue);
}

void embed_position(UnpackKernel by, const Matrix& table, const int32_t* positions, int64_t row, int64_t n_tokens,
                    float* y, const Queue& queue) {
  if (row < 0) return decode(by, table, {.rows = positions, .n_rows = n_tokens, .y = y}, queue);
  decode(by, table, {.row_begin = row, .n_rows = n_tokens, .repeats = true, .y = y}, queue.stream);
}

void decode_rows(UnpackKernel by, const Matrix& matrix, int64_t row_begin, int64_t n_rows, float* out,
                 cudaStream_t stream) {
  decode(by, matrix, {.row_begin = row_begin, .n_rows = n_rows, .y = out}, stream);
}

void rms_norm(const float* x, const float* w, float eps, int64_t d, int64_t n_runs, float* y, cudaStream_t stream) {
  if (n_runs > 0) rms_norm_kernel<<<blocks_for(n_runs * 32), kThreads, 0, stream>>>(x, w, eps, d, n_runs, y);
}

void rope(const float* x, const float* table, const int32_t* positions, int64_t n_tokens, const RopeShape& shape,
          float* y, cudaStream_t stream) {
  const int64_t n = n_tokens * shape.n_heads * (shape.head_dim - shape.dim / 2);
  if (n > 0) rope_kernel<<<blocks_for(n), kThreads, 0, stream>>>(x, table, positions, n_tokens, shape, y);
}

void add(const float* a, const float* b, int64_t n, float* y, cudaStream_t stream) {
  if (n > 0) add_kernel<<<blocks_for(n), kThreads, 0, stream>>>(a, b, n, y);
}

void select_rows(const float* x, const int32_t* rows, int64_t n_rows, int64_t width, float* y, cudaStream_t stream) {
  if (n_rows > 0) select_kernel<<<blocks_for(n_rows * width), kThreads, 0, stream>>>(x, rows, n_rows, width, y);
}

void cut_blocks(const uint8_t* blocks, int64_t n_blocks, const Parts& parts, cudaStream_t stream) {
  int block_bytes = 0;
  for (int p = 0; p < parts.n; ++p) block_bytes += parts.bytes[p];
  cut_kernel<<<blocks_for(n_blocks * block_bytes), kThreads, 0, stream>>>(blocks, n_blocks, block_bytes, parts);
}

}  // namespace assay::backend::cuda
