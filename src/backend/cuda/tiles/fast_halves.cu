// blocks_to_halves of fast_blocks.h: eight neighbours a thread where the format is cut into parts, else a block a
// thread.
#include "backend/cuda/linear/block_load.cuh"
#include "backend/cuda/linear/eight_elements.cuh"
#include "backend/cuda/linear/formats.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/tiles/fast_blocks.h"
#include "backend/cuda/tiles/fast_types.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 128;

struct HalvesTask {
  Parts parts;
  int64_t cols = 0, row_begin = 0, n_rows = 0;
  uint4* out = nullptr;
};

__device__ uint4 eight_halves(const float* v) {
  return {FastF16::rounded(v[0], v[1]), FastF16::rounded(v[2], v[3]), FastF16::rounded(v[4], v[5]),
          FastF16::rounded(v[6], v[7])};
}

// grid: rows, parts of a row. The blocks are no other kernel's; only what lies where the halves go may still be read.
template <class Eight>
__global__ void eight_to_halves_kernel(HalvesTask task) {
  constexpr int kPerBlock = Eight::kBlock / 8;
  let_next_start();
  const int of_row = static_cast<int>(task.cols / 8),
            i = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  EightElements x = {};
  if (i < of_row)
    x = Eight::of(task.parts, (task.row_begin + row) * (of_row / kPerBlock) + i / kPerBlock, i % kPerBlock * 8);
  const uint4 halves = eight_halves(x.v);
  wait_for_previous();
  if (i < of_row) task.out[row * of_row + i] = halves;
}

template <class Format, int kBlock>
__global__ void block_to_halves_kernel(HalvesTask task) {
  let_next_start();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, of_row = task.cols / kBlock;
  const bool inside = i < task.n_rows * of_row;
  wait_for_previous();
  if (!inside) return;
  const auto block = load_block_of<typename Format::Block>(task.parts, task.row_begin * of_row + i);
  float values[kBlock];
  if constexpr (kBlock == 32) {
    quant::decode_32<typename Format::Block>(reinterpret_cast<const std::byte*>(&block), values);
  } else {
    quant::decode_256<typename Format::Block>(reinterpret_cast<const std::byte*>(&block), values);
  }
  for (int j = 0; j < kBlock / 8; ++j) task.out[i * (kBlock / 8) + j] = eight_halves(values + 8 * j);
}

unsigned groups_of(int64_t n, int64_t each) { return static_cast<unsigned>((n + each - 1) / each); }

}  // namespace

void blocks_to_halves(UnpackKernel by, const Matrix& w, int64_t row_begin, int64_t n_rows, void* halves,
                      const Queue& queue) {
  if (n_rows == 0) return;
  const HalvesTask task{w.parts, w.cols, row_begin, n_rows, static_cast<uint4*>(halves)};
  const auto start_blocks = [&](auto kernel, int64_t block) {
    launch(queue, kernel, dim3(groups_of(n_rows * (w.cols / block), kThreads)), kThreads, 0, task);
  };
  const auto start_eights = [&]<class Eight>(Eight) {
    if constexpr (Eight::kBlock > 8) {
      const dim3 grid(static_cast<unsigned>(n_rows), groups_of(w.cols / 8, kThreads));
      launch(queue, eight_to_halves_kernel<Eight>, grid, kThreads, 0, task);
    }
  };
  if (by == UnpackKernel::eights) return EightFormats::visit_type(w.dtype, start_eights);
  visit_blocks(w.dtype, [&]<class F, class N>(F, N) { start_blocks(block_to_halves_kernel<F, N::value>, N::value); });
}

}  // namespace assay::backend::cuda
