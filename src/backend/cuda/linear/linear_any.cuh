// Dots of any block format: one thread a chunk of a row, so 8 neighbouring lanes a row; each thread unpacks its blocks
// with the format's own code and multiplies them by up to kTokens rows of activations.
//
//   block of 128 threads: 16 rows; 1 token, or 8 by blockIdx.y
//
//   thread            0 | 1 | .. | 7 | 8 | 9 | ..          row: thread / 8, chunk: thread % 8
//   device memory     a block of weights ------------> the thread's own: integers and scales, once for all tokens
//                     a token's block of integers ---> read where it is used: sum of products, its term, chain c[token]
//   at the end        shuffles 1, 2, 4 over the 8 threads of a row: the tree; the first of them writes y [token][row]
#pragma once

#include "backend/cuda/linear/block_load.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/lanes.h"
#include "quant/activations.h"
#include "quant/blocks.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

struct AnyTask {
  Parts w;
  int64_t n_rows = 0, n_blocks = 0;  // blocks of a row
  quant::Activations x;
  int64_t n_tokens = 0;
  const float* bias = nullptr;
  float* y = nullptr;
};

inline constexpr int kAnyRowsPerBlock = 16;

// 4 products at a time; `words` are n / 4 words of 4 signed bytes.
template <int n>
__device__ inline int32_t dot_bytes(const int8_t* w, const int8_t* q) {
  const auto* a = reinterpret_cast<const int32_t*>(w);
  const auto* b = reinterpret_cast<const int32_t*>(q);
  int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < n / 4; ++i) sum = __dp4a(a[i], b[i], sum);
  return sum;
}

struct alignas(16) Unpacked32 {
  quant::Integers32 n;
};
struct alignas(16) Unpacked256 {
  quant::Integers256 n;
};

template <class Block>
__device__ inline quant::IntegerSums sums_of(const Unpacked32& u, const int8_t* q, const int16_t* group_sums) {
  return {dot_bytes<32>(u.n.w, q), Block::kHasMin ? group_sums[0] : 0};
}
template <class Block>
__device__ inline quant::IntegerSums sums_of(const Unpacked256& u, const int8_t* q, const int16_t* group_sums) {
  quant::IntegerSums sums;
  for (int group = 0; group < 16; ++group) {
    sums.i += u.n.scale[group] * dot_bytes<16>(u.n.w + 16 * group, q + 16 * group);
    if (Block::kHasMin) sums.m += u.n.min[group] * group_sums[group];
  }
  return sums;
}

// A chain of a sum after one more block, number `at` of the activations.
template <class Block, int kBlock, class Unpacked>
__device__ inline float with_block(const Unpacked& u, const quant::BlockScales& scale, const quant::Activations& x,
                                   int64_t at, float c) {
  constexpr int kGroups = kBlock == 32 ? 1 : 16;  // of sums in a block
  const quant::IntegerSums high = sums_of<Block>(u, x.q + at * kBlock, x.q_sums + at * kGroups);
  float f = static_cast<float>(high.i), g = static_cast<float>(high.m);
  if (x.planes == 2) {
    const quant::IntegerSums low = sums_of<Block>(u, x.l + at * kBlock, x.l_sums + at * kGroups);
    f = quant::join_planes(high.i, low.i);
    g = quant::join_planes(high.m, low.m);
  }
  return num::fma(x.d[at], quant::block_term(Block::kHasMin, scale, f, g), c);
}

template <class Block, int kBlock, int kTokens>
__global__ void any_format_kernel(AnyTask task) {
  using Unpacked = std::conditional_t<kBlock == 32, Unpacked32, Unpacked256>;
  const int64_t row = int64_t{blockIdx.x} * kAnyRowsPerBlock + threadIdx.x / 8;
  const int64_t first_token = int64_t{blockIdx.y} * kTokens;
  const int chunk = threadIdx.x % 8;
  const bool active = row < task.n_rows;
  float c[kTokens] = {};
  const int64_t begin = quant::chunk_begin(chunk, task.n_blocks),
                end = active ? quant::chunk_begin(chunk + 1, task.n_blocks) : begin;
  for (int64_t b = begin; b < end; ++b) {
    const auto block = load_block_of<Block>(task.w, row * task.n_blocks + b);
    const quant::BlockScales scale = quant::scales(block);
    Unpacked u;
    unpack(block, u.n);
    for (int t = 0; t < kTokens; ++t) {
      const int64_t token = first_token + t;
      if (token >= task.n_tokens) break;
      c[t] = with_block<Block, kBlock>(u, scale, task.x, token * task.n_blocks + b, c[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int width = 1; width <= 4; width *= 2)
      c[t] = c[t] + __shfl_xor_sync(kWholeWarp, c[t], width);  // the tree; a sum's order is its lanes'
    const int64_t token = first_token + t;
    if (chunk == 0 && active && token < task.n_tokens) {
      task.y[token * task.n_rows + row] = task.bias == nullptr ? c[t] : c[t] + task.bias[row];
    }
  }
}

template <class Block, int kBlock>
void launch_any_format(const AnyTask& task, cudaStream_t stream) {
  constexpr int kTokensMany = 8;
  const auto rows = static_cast<unsigned>((task.n_rows + kAnyRowsPerBlock - 1) / kAnyRowsPerBlock);
  if (task.n_tokens == 1) {
    any_format_kernel<Block, kBlock, 1><<<rows, kAnyRowsPerBlock * 8, 0, stream>>>(task);
  } else {
    const auto tiles = static_cast<unsigned>((task.n_tokens + kTokensMany - 1) / kTokensMany);
    any_format_kernel<Block, kBlock, kTokensMany><<<dim3(rows, tiles), kAnyRowsPerBlock * 8, 0, stream>>>(task);
  }
}

// Of superblocks; one file each, for they compile long.
void linear_any_256(tensor::DType dtype, const AnyTask& task, cudaStream_t stream);

}  // namespace assay::backend::cuda
