// See row_kernels.h.
#include "backend/cuda/row_kernels.h"

#include <cuda_fp16.h>

#include "backend/cuda/block_load.cuh"
#include "backend/cuda/decode_cut.h"
#include "backend/cuda/formats.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/warp.cuh"
#include "num/math.h"
#include "quant/float.h"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }
__device__ int64_t thread_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// One thread a block of weights: row rows[i] (or row_begin + i) of the matrix, decoded, times scale where the op has one.
template <class Format, int kBlock>
__global__ void decode_kernel(Parts parts, int64_t blocks_per_row, const int32_t* rows, int64_t row_begin, int64_t n_rows, bool scaled,
                              float scale, float* y) {
  if (rows != nullptr) let_next_start();  // rows of tokens; a matrix that is decoded the next kernel may fetch before it waits
  const int64_t i = thread_index();
  if (i >= n_rows * blocks_per_row) return;
  const int64_t row = rows != nullptr ? rows[i / blocks_per_row] : row_begin + i / blocks_per_row;
  const auto block = load_block_of<typename Format::Block>(parts, row * blocks_per_row + i % blocks_per_row);
  float values[kBlock];
  if constexpr (kBlock == 32) {
    quant::decode_32<typename Format::Block>(reinterpret_cast<const std::byte*>(&block), values);
  } else {
    quant::decode_256<typename Format::Block>(reinterpret_cast<const std::byte*>(&block), values);
  }
  for (int j = 0; j < kBlock; ++j) y[i * kBlock + j] = scaled ? values[j] * scale : values[j];
}

__device__ float widen(const float* x) { return *x; }
__device__ float widen(const __half* x) { return __half2float(*x); }
struct Bf16 {
  uint16_t bits;
};
__device__ float widen(const Bf16* x) { return num::bf16_to_float(x->bits); }

template <class T>
__global__ void widen_kernel(const T* w, int64_t cols, const int32_t* rows, int64_t row_begin, int64_t n_rows, bool scaled, float scale,
                             float* y) {
  if (rows != nullptr) let_next_start();  // as in decode_kernel
  const int64_t i = thread_index();
  if (i >= n_rows * cols) return;
  const int64_t row = rows != nullptr ? rows[i / cols] : row_begin + i / cols;
  const float value = widen(w + row * cols + i % cols);
  y[i] = scaled ? value * scale : value;
}

void decode_any(const Matrix& m, const int32_t* rows, int64_t row_begin, int64_t n_rows, bool scaled, float scale, float* y,
                cudaStream_t stream) {
  if (n_rows == 0 || decode_cut(m, rows, row_begin, n_rows, scaled, scale, y, stream)) return;
  using tensor::DType;
  const auto widened = [&]<class T>(const T* w) {
    widen_kernel<<<blocks_for(n_rows * m.cols), kThreads, 0, stream>>>(w, m.cols, rows, row_begin, n_rows, scaled, scale, y);
  };
  const void* base = m.parts.base[0];
  if (m.dtype == DType::F32) return widened(static_cast<const float*>(base));
  if (m.dtype == DType::F16) return widened(static_cast<const __half*>(base));
  if (m.dtype == DType::BF16) return widened(static_cast<const Bf16*>(base));
  visit_format(quant::Formats32{}, m.dtype, [&]<class F>(F) {
    const int64_t n = m.cols / 32;
    decode_kernel<F, 32><<<blocks_for(n_rows * n), kThreads, 0, stream>>>(m.parts, n, rows, row_begin, n_rows, scaled, scale, y);
  });
  visit_format(quant::Formats256{}, m.dtype, [&]<class F>(F) {
    const int64_t n = m.cols / 256;
    decode_kernel<F, 256><<<blocks_for(n_rows * n), kThreads, 0, stream>>>(m.parts, n, rows, row_begin, n_rows, scaled, scale, y);
  });
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
  for (int64_t j = lane; j < d; j += 32) y[j] = (x[j] * r) * w[j];
}

// One thread a pair; the elements beyond dim are pairs of their own.
__global__ void rope_kernel(const float* x, const float* table, const int32_t* positions, int64_t n_tokens, RopeShape s, float* y) {
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
  const float x_a = x[a], x_b = x[b];
  y[a] = num::fma(x_a, cos, -(x_b * sin));
  y[b] = num::fma(x_a, sin, x_b * cos);
}

__global__ void add_kernel(const float* a, const float* b, int64_t n, float* y) {
  const int64_t i = thread_index();
  if (i < n) y[i] = a[i] + b[i];
}

template <ops::GateActivation activation>
__global__ void gate_kernel(const float* gate, const float* up, int64_t n, float* y) {
  const int64_t i = thread_index();
  if (i >= n) return;
  y[i] = (activation == ops::GateActivation::silu ? num::silu(gate[i]) : num::gelu_tanh(gate[i])) * up[i];
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

void embed(const Matrix& table, const int32_t* tokens, int64_t n_tokens, float scale, float* y, cudaStream_t stream) {
  decode_any(table, tokens, 0, n_tokens, true, scale, y, stream);
}

void decode_rows(const Matrix& matrix, int64_t row_begin, int64_t n_rows, float* out, cudaStream_t stream) {
  decode_any(matrix, nullptr, row_begin, n_rows, false, 1.0f, out, stream);
}

void rms_norm(const float* x, const float* w, float eps, int64_t d, int64_t n_runs, float* y, cudaStream_t stream) {
  if (n_runs > 0) rms_norm_kernel<<<blocks_for(n_runs * 32), kThreads, 0, stream>>>(x, w, eps, d, n_runs, y);
}

void rope(const float* x, const float* table, const int32_t* positions, int64_t n_tokens, const RopeShape& shape, float* y,
          cudaStream_t stream) {
  const int64_t n = n_tokens * shape.n_heads * (shape.head_dim - shape.dim / 2);
  if (n > 0) rope_kernel<<<blocks_for(n), kThreads, 0, stream>>>(x, table, positions, n_tokens, shape, y);
}

void add(const float* a, const float* b, int64_t n, float* y, cudaStream_t stream) {
  if (n > 0) add_kernel<<<blocks_for(n), kThreads, 0, stream>>>(a, b, n, y);
}

void gate(const float* gate, const float* up, ops::GateActivation activation, int64_t n, float* y, cudaStream_t stream) {
  if (n == 0) return;
  if (activation == ops::GateActivation::silu) {
    gate_kernel<ops::GateActivation::silu><<<blocks_for(n), kThreads, 0, stream>>>(gate, up, n, y);
  } else {
    gate_kernel<ops::GateActivation::gelu_tanh><<<blocks_for(n), kThreads, 0, stream>>>(gate, up, n, y);
  }
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
