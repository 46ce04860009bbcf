// Decode: products of one or a few tokens, bound by reading the weights. A warp takes kRows rows; four neighbouring lanes take one of the 8
// chunks of the contract and walk its blocks, so every chain is summed in place and the tree is three shuffles at the end.
#include "backend/cuda/formats.h"
#include "backend/cuda/gemv_formats.cuh"
#include "backend/cuda/linear.h"
#include "backend/cuda/warp.cuh"
#include "num/lanes.h"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

constexpr int kWarps = 4;

struct GemvTask {
  Parts w;
  int32_t n_rows = 0, n_blocks = 0;
  quant::Activations x;
  int32_t n_tokens = 0;
  const float* bias = nullptr;
  float* y = nullptr;
};

__device__ int32_t group_sum(int32_t x) {  // over the four lanes of a chunk
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}

// Superblocks: the four lanes share a block.
template <class Format, int kPlanes>
__device__ float term_256(const Lane256& lane, const GemvTask& task, int64_t at, int part) {
  const int low_run = Format::low_run(part), high_run = Format::high_run(part);
  int32_t i[kPlanes], m[kPlanes];
#pragma unroll
  for (int plane = 0; plane < kPlanes; ++plane) {
    const int8_t* q = (plane == 0 ? task.x.q : task.x.l) + at * 256;
    const auto* sums = reinterpret_cast<const short2*>((plane == 0 ? task.x.q_sums : task.x.l_sums) + at * 16);
    const auto* a = reinterpret_cast<const uint4*>(q + low_run);
    const auto* b = reinterpret_cast<const uint4*>(q + high_run);
    const Words low = words_of(a[0], a[1]), high = words_of(b[0], b[1]);
    const short2 low_sums = sums[low_run / 32], high_sums = sums[high_run / 32];
    if constexpr (Format::kHasMin) {
      i[plane] = lane.scale[0] * dot_8(lane.low, low) + lane.scale[2] * dot_8(lane.high, high);
      m[plane] = lane.min[0] * (low_sums.x + low_sums.y) + lane.min[2] * (high_sums.x + high_sums.y);
      m[plane] = group_sum(m[plane]);
    } else {
      i[plane] = lane.scale[0] * (dot_4(lane.low.w, low.w) - lane.offset * low_sums.x) +
                 lane.scale[1] * (dot_4(lane.low.w + 4, low.w + 4) - lane.offset * low_sums.y) +
                 lane.scale[2] * (dot_4(lane.high.w, high.w) - lane.offset * high_sums.x) +
                 lane.scale[3] * (dot_4(lane.high.w + 4, high.w + 4) - lane.offset * high_sums.y);
      m[plane] = 0;
    }
    i[plane] = group_sum(i[plane]);
  }
  const float f = kPlanes == 2 ? quant::join_planes(i[0], i[kPlanes - 1]) : static_cast<float>(i[0]);
  const float g = kPlanes == 2 ? quant::join_planes(m[0], m[kPlanes - 1]) : static_cast<float>(m[0]);
  return quant::block_term(Format::kHasMin, lane.scales, f, g);
}

// Blocks of 32: each of the four lanes has its own.
template <class Format, int kPlanes>
__device__ float term_32(const Lane32& lane, const GemvTask& task, int64_t at) {
  int32_t i[kPlanes], m[kPlanes];
#pragma unroll
  for (int plane = 0; plane < kPlanes; ++plane) {
    const auto* a = reinterpret_cast<const uint4*>((plane == 0 ? task.x.q : task.x.l) + at * 32);
    const int32_t sum = (plane == 0 ? task.x.q_sums : task.x.l_sums)[at];
    i[plane] = dot_8(lane.w, words_of(a[0], a[1])) - lane.offset * sum;
    m[plane] = Format::kHasMin ? sum : 0;
  }
  const float f = kPlanes == 2 ? quant::join_planes(i[0], i[kPlanes - 1]) : static_cast<float>(i[0]);
  const float g = kPlanes == 2 ? quant::join_planes(m[0], m[kPlanes - 1]) : static_cast<float>(m[0]);
  return quant::block_term(Format::kHasMin, lane.scale, f, g);
}

template <class Format, int kPlanes, int kRows, int kTokens>
__global__ void __launch_bounds__(32 * kWarps) gemv_kernel(GemvTask task) {
  const int row_0 = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32) * kRows;
  if (row_0 >= task.n_rows) return;
  const int token_0 = static_cast<int>(blockIdx.y) * kTokens;
  const int lane = threadIdx.x % 32, chunk = lane / 4, part = lane % 4;
  const int begin = static_cast<int>(quant::chunk_begin(chunk, task.n_blocks)), end = static_cast<int>(quant::chunk_begin(chunk + 1, task.n_blocks));
  const int longest = (task.n_blocks + 7) / 8;  // all lanes walk as far, for the shuffles
  float c[kRows][kTokens] = {};
  constexpr int kStep = Format::kBlock == 256 ? 1 : 4;
  for (int i = 0; i < longest; i += kStep) {
    const int b = begin + i + (kStep == 4 ? part : 0);
    const bool inside = b < end;
    const int at = inside ? b : task.n_blocks - 1;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t block = int64_t{min(row_0 + r, task.n_rows - 1)} * task.n_blocks + at;
      if constexpr (Format::kBlock == 256) {
        const Lane256 w = Format::load(task.w, block, part);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const int64_t x_at = int64_t{min(token_0 + t, task.n_tokens - 1)} * task.n_blocks + at;
          const float next = num::fma(task.x.d[x_at], term_256<Format, kPlanes>(w, task, x_at, part), c[r][t]);
          c[r][t] = inside ? next : c[r][t];
        }
      } else {
        const Lane32 w = Format::load(task.w, block);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const int64_t x_at = int64_t{min(token_0 + t, task.n_tokens - 1)} * task.n_blocks + at;
          const float term = term_32<Format, kPlanes>(w, task, x_at), d = task.x.d[x_at];
#pragma unroll
          for (int s = 0; s < 4; ++s) {  // the chain goes through the four lanes' blocks
            const float next = num::fma(__shfl_sync(kWholeWarp, d, s, 4), __shfl_sync(kWholeWarp, term, s, 4), c[r][t]);
            c[r][t] = begin + i + s < end ? next : c[r][t];
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float y = c[r][t];
#pragma unroll
      for (int width = 4; width <= 16; width *= 2) y = y + __shfl_xor_sync(kWholeWarp, y, width);  // the tree over the chunks
      const int row = row_0 + r, token = token_0 + t;
      if (lane == 0 && row < task.n_rows && token < task.n_tokens) {
        task.y[int64_t{token} * task.n_rows + row] = task.bias == nullptr ? y : y + task.bias[row];
      }
    }
  }
}

template <class Format, int kPlanes>
void launch(const GemvTask& task, cudaStream_t stream) {
  const auto blocks = [&](int rows) { return static_cast<unsigned>((task.n_rows + rows * kWarps - 1) / (rows * kWarps)); };
  if (task.n_tokens == 1) {
    gemv_kernel<Format, kPlanes, 1, 1><<<blocks(1), 32 * kWarps, 0, stream>>>(task);
  } else {
    constexpr int kTokens = 4;
    const auto tiles = static_cast<unsigned>((task.n_tokens + kTokens - 1) / kTokens);
    gemv_kernel<Format, kPlanes, 1, kTokens><<<dim3(blocks(1), tiles), 32 * kWarps, 0, stream>>>(task);
  }
}

template <class Format>
bool try_format(const Matrix& w, const GemvTask& task, cudaStream_t stream) {
  if (w.dtype != Format::kDType) return false;
  task.x.planes == 2 ? launch<Format, 2>(task, stream) : launch<Format, 1>(task, stream);
  return true;
}

}  // namespace

bool linear_gemv(const Matrix& w, const quant::Activations& x, int64_t n_tokens, const float* bias, float* y, cudaStream_t stream) {
  if (n_tokens == 0) return true;
  if (w.parts.n < 2 || w.rows > INT32_MAX || n_tokens > INT32_MAX) return false;
  const GemvTask task{w.parts, static_cast<int32_t>(w.rows), static_cast<int32_t>(w.cols / x.block()), x, static_cast<int32_t>(n_tokens), bias, y};
  return try_format<GemvQ4_0>(w, task, stream) || try_format<GemvQ4_1>(w, task, stream) || try_format<GemvQ8_0>(w, task, stream) ||
         try_format<GemvQ4_K>(w, task, stream) || try_format<GemvQ5_K>(w, task, stream) || try_format<GemvQ6_K>(w, task, stream);
}

}  // namespace assay::backend::cuda
