// fast_tiles of fast_linear.h (fast_tile.cuh).
#include "backend/cuda/tiles/fast_tile.cuh"

namespace assay::backend::cuda {

void fast_tiles(std::span<const FloatRows> runs, int64_t cols, const void* halves, int64_t n_tokens,
                const Hopper& hopper, const Queue& queue) {
  fast_tile::run_tiles<true>(runs, cols, halves, n_tokens, hopper, queue);
}

}  // namespace assay::backend::cuda
