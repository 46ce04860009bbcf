// Experts of any block format: as any_format_kernel (linear_any.cuh), one pair of token and rank beside the other along
// the grid.
#pragma once

#include "backend/cuda/experts/expert_pick.cuh"
#include "backend/cuda/linear/linear_any.cuh"

namespace assay::backend::cuda {

struct AnyExpertTask {
  ExpertPick pick;
  Parts w;
  int64_t n_blocks, d_out, blocks_of_pair;  // of a row; of threads
  quant::Activations x;
  const float* bias;
  float* y;
};

template <class Block, int kBlock>
__global__ void any_expert_kernel(AnyExpertTask task) {
  using Unpacked = std::conditional_t<kBlock == 32, Unpacked32, Unpacked256>;
  const int64_t pair = blockIdx.x / task.blocks_of_pair,
                at_row = blockIdx.x % task.blocks_of_pair * kAnyRowsPerBlock + threadIdx.x / 8;
  const int chunk = threadIdx.x % 8;
  const bool active = at_row < task.d_out;
  const auto i_pair = static_cast<uint32_t>(pair);
  const int64_t row = task.pick.row_begin(task.pick.expert_of(i_pair)) + (active ? at_row : 0),
                x_row = task.pick.row_of_x(i_pair);
  float c = 0.0f;
  const int64_t begin = quant::chunk_begin(chunk, task.n_blocks),
                end = active ? quant::chunk_begin(chunk + 1, task.n_blocks) : begin;
  for (int64_t b = begin; b < end; ++b) {
    const auto block = load_block_of<Block>(task.w, row * task.n_blocks + b);
    const quant::BlockScales scale = quant::scales(block);
    Unpacked u;
    unpack(block, u.n);
    c = with_block<Block, kBlock>(u, scale, task.x, x_row * task.n_blocks + b, c);
  }
#pragma unroll
  for (int width = 1; width <= 4; width *= 2) c = c + __shfl_xor_sync(kWholeWarp, c, width);
  if (chunk == 0 && active) task.y[pair * task.d_out + at_row] = task.bias == nullptr ? c : c + task.bias[row];
}

template <class Block, int kBlock>
void launch_any_expert(const ExpertTask& t, const quant::Activations& x, const Queue& queue) {
  const int64_t of_pair = (t.d_out + kAnyRowsPerBlock - 1) / kAnyRowsPerBlock;
  const AnyExpertTask task{ExpertPick(t), t.w->parts, t.d_in / kBlock, t.d_out, of_pair, x, t.bias, t.y};
  any_expert_kernel<Block, kBlock>
      <<<static_cast<unsigned>(t.n_pairs * of_pair), kAnyRowsPerBlock * 8, 0, queue.stream>>>(task);
}

// Of superblocks; one file each, for they compile long.
void expert_any_256(const ExpertTask& task, const quant::Activations& x, const Queue& queue);

}  // namespace assay::backend::cuda
