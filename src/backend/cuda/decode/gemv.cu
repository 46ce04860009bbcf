// Decode: products of one or a few tokens in one kernel, rows as gemv_rows.cuh has them: each matrix has its share of
// the blocks of threads.
#include <algorithm>

#include "backend/cuda/decode/gemv_rows.cuh"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/runtime/launch.cuh"

namespace assay::backend::cuda {
namespace {

struct GemvTasks {
  GemvTask task[kLinearsMax];
  int32_t n = 0;
  quant::Activations x;
  int32_t n_tokens = 0;
};

template <class List, int kPlanes, int kTokens>
__global__ void __launch_bounds__(32 * kGemvWarps, kTokens == 1 ? kGemvBlocksPerSm : 3)
    gemv_kernel(const __grid_constant__ GemvTasks tasks) {
  let_next_start();
  int i = 0;
  while (i + 1 < tasks.n && static_cast<int>(blockIdx.x) >= tasks.task[i + 1].first_block) ++i;
  const GemvTask& task = tasks.task[i];
  const int row = (static_cast<int>(blockIdx.x) - task.first_block) * kGemvWarps + static_cast<int>(threadIdx.x / 32);
  const int first = static_cast<int>(blockIdx.y) * kTokens;
  const int n_tokens = min(tasks.n_tokens - first, kTokens);
  List::with(task.format, [&]<class Format>(Format) {
    run_rows<Format, kPlanes, kTokens>(GemvMatrices<1>{{&task.w}, task.n_rows, task.n_blocks}, tasks.x, first, n_tokens,
                                       row, task.n_thread_blocks * kGemvWarps, [&](int, int t, int of_row, float y) {
                                         if (threadIdx.x % 32 != 0) return;
                                         task.y[int64_t{first + t} * task.n_rows + of_row] =
                                             task.bias == nullptr ? y : y + task.bias[of_row];
                                       });
  });
}

template <class List, int kPlanes>
void launch_tasks(const GemvTasks& tasks, int n_blocks, const Queue& queue) {
  constexpr int kTokensMany = 4;
  if (tasks.n_tokens == 1) {
    launch(queue, gemv_kernel<List, kPlanes, 1>, dim3(static_cast<unsigned>(n_blocks)), 32 * kGemvWarps, 0, tasks);
  } else {
    const auto tiles = static_cast<unsigned>((tasks.n_tokens + kTokensMany - 1) / kTokensMany);
    launch(queue, gemv_kernel<List, kPlanes, kTokensMany>, dim3(static_cast<unsigned>(n_blocks), tiles),
           32 * kGemvWarps, 0, tasks);
  }
}

template <class List>
void launch_list(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens,
                 const Queue& queue) {
  GemvTasks tasks;
  int n_blocks = 0;
  int64_t rows_of_all = 0;
  for (const LinearTask& linear : linears) rows_of_all += linear.w->rows;
  for (const LinearTask& linear : linears) {
    const int format = List::find(linear.w->dtype);
    // A row a warp while the machine has room for all of them at once; else each matrix has its share of what there is
    // room for.
    const int64_t whole = (linear.w->rows + kGemvWarps - 1) / kGemvWarps,
                  room = (kGemvBlocksMax * linear.w->rows + rows_of_all - 1) / rows_of_all;
    const auto share = static_cast<int32_t>(std::min(whole, room));
    tasks.task[tasks.n++] = {linear.w->parts,
                             format,
                             static_cast<int32_t>(linear.w->rows),
                             static_cast<int32_t>(linear.w->cols / x.block()),
                             n_blocks,
                             share,
                             linear.bias,
                             linear.y};
    n_blocks += share;
  }
  tasks.x = x;
  tasks.n_tokens = static_cast<int32_t>(n_tokens);
  x.planes == 2 ? launch_tasks<List, 2>(tasks, n_blocks, queue) : launch_tasks<List, 1>(tasks, n_blocks, queue);
}

}  // namespace

int code_on_device() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, gemv_kernel<GemvFormats32, 1, 1>) == cudaSuccess ? attributes.ptxVersion
                                                                                             : 0;
}

void linear_gemv(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens,
                 const Queue& queue) {
  x.kind == quant::Activation::a256 ? launch_list<GemvFormats256>(linears, x, n_tokens, queue)
                                    : launch_list<GemvFormats32>(linears, x, n_tokens, queue);
}

}  // namespace assay::backend::cuda
