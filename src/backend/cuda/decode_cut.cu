// See decode_cut.h. The threads take the shares that the lanes of the decode kernels take (gemv_formats.cuh).
#include "backend/cuda/decode_cut.h"

#include "backend/cuda/gemv_formats.cuh"
#include "backend/cuda/launch.cuh"

namespace assay::backend::cuda {
namespace {

__device__ int byte_of(const Words& words, int i) { return static_cast<int>((words.w[i / 4] >> (8 * (i % 4))) & 255u); }

// Values as quant/block.h decodes them.
template <class Format>
__global__ void decode_cut_kernel(Parts parts, int64_t blocks_per_row, const int32_t* rows, int64_t row_begin, int64_t n_rows, bool scaled,
                                  float scale, float* y) {
  constexpr int kShares = Format::kBlock == 256 ? 4 : 1;
  if (rows != nullptr) let_next_start();  // rows of tokens; a matrix that is decoded the next kernel may fetch before it waits
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, i_block = i / kShares;
  const int part = static_cast<int>(i % kShares);
  if (i_block >= n_rows * blocks_per_row) return;
  const int64_t i_row = i_block / blocks_per_row, row = rows != nullptr ? rows[i_row] : row_begin + i_row;
  const auto w = Format::unpack(Format::load(parts, row * blocks_per_row + i_block % blocks_per_row, part), part);
  float* out = y + i_block * Format::kBlock;
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    if constexpr (Format::kBlock == 256) {
      const float low = (w.scales.d * static_cast<float>(w.scale[j / 16])) * static_cast<float>(byte_of(w.low, j) - w.offset);
      const float high = (w.scales.d * static_cast<float>(w.scale[2 + j / 16])) * static_cast<float>(byte_of(w.high, j) - w.offset);
      const float a = Format::kHasMin ? low + w.scales.m * static_cast<float>(w.min[j / 16]) : low;
      const float b = Format::kHasMin ? high + w.scales.m * static_cast<float>(w.min[2 + j / 16]) : high;
      out[Format::low_run(part) + j] = scaled ? a * scale : a;
      out[Format::high_run(part) + j] = scaled ? b * scale : b;
    } else {
      const int integer = w.offset == 0 && !Format::kHasMin ? static_cast<int8_t>(byte_of(w.w, j)) : byte_of(w.w, j) - w.offset;
      const float product = w.scale.d * static_cast<float>(integer);
      const float value = Format::kHasMin ? product + w.scale.m : product;
      out[j] = scaled ? value * scale : value;
    }
  }
}

template <class Format>
bool try_decode(const Matrix& m, const int32_t* rows, int64_t row_begin, int64_t n_rows, bool scaled, float scale, float* y, cudaStream_t stream) {
  if (m.dtype != Format::kDType) return false;
  constexpr int kThreads = 64, kShares = Format::kBlock == 256 ? 4 : 1;
  const int64_t n = m.cols / Format::kBlock;
  const auto blocks = static_cast<unsigned>((n_rows * n * kShares + kThreads - 1) / kThreads);
  decode_cut_kernel<Format><<<blocks, kThreads, 0, stream>>>(m.parts, n, rows, row_begin, n_rows, scaled, scale, y);
  return true;
}

}  // namespace

bool decode_cut(const Matrix& m, const int32_t* rows, int64_t row_begin, int64_t n_rows, bool scaled, float scale, float* y,
                cudaStream_t stream) {
  if (m.parts.n < 2) return false;
  const auto decode = [&]<class F>(F) { return try_decode<F>(m, rows, row_begin, n_rows, scaled, scale, y, stream); };
  return decode(GemvQ4_0{}) || decode(GemvQ4_1{}) || decode(GemvQ8_0{}) || decode(GemvQ4_K{}) || decode(GemvQ5_K{}) || decode(GemvQ6_K{});
}

}  // namespace assay::backend::cuda
