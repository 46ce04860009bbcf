// The products of many tokens in mode fast without the contract's tree: one chain over all of K (micro_cuda).
#include "backend/cuda/tiles/fast_tile.cuh"

namespace assay::backend::cuda {

bool tiles_in_one_chain(std::span<const FloatRows> runs, int64_t cols, const void* halves, int64_t n_tokens,
                        const Hopper& hopper, const Queue& queue) {
  return fast_tile::run_tiles<false>(runs, cols, halves, n_tokens, hopper, queue);
}

}  // namespace assay::backend::cuda
