// Decode: products by experts (expert_linear.h), rows as decode/gemv_rows.cuh has them: as many blocks of threads for
// each pair of token and rank.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/decode/gemv_rows.cuh"
#include "backend/cuda/experts/expert_pick.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace assay::backend::cuda {
namespace {

template <class List>
constexpr bool kIsSuper = std::is_same_v<List, GemvFormats256>;

// One product by experts or two of the same rows of activations (blockIdx.y), whose experts have as many rows.
struct ExpertTasks {
  GemvTask task[2];
  ExpertPick pick[2];
  quant::Activations x;
  int32_t d_out;
  bool routes_are_settled;
};

// The rows of a pair's expert (expert_linear.h): as many blocks of threads for each pair. kShort: ShortRow.
// The next kernel starts when this one's wait is over, for one behind it may rely on that: its routes are settled then,
// and it fetches its weights before it waits. Their place in memory had others in it before, so they are not read
// through the first-level cache.
template <class List, int kPlanes, bool kShort>
__global__ void __launch_bounds__(32 * kGemvWarps, kGemvBlocksPerSm)
    expert_gemv_kernel(const __grid_constant__ ExpertTasks tasks) {
  if (!tasks.routes_are_settled) wait_for_previous();
  let_next_start();
  GemvTask task = tasks.task[blockIdx.y];
  const ExpertPick& pick = tasks.pick[blockIdx.y];
  const uint32_t pair = blockIdx.x / static_cast<uint32_t>(task.n_thread_blocks);
  const auto first = static_cast<int>(pick.row_begin(pick.settled_expert_of(pair)));
  task.n_rows = first + tasks.d_out;
  constexpr int kRows = kShort ? kShortRows : 1;  // of a warp at a time
  const int row_0 =
      first +
      (static_cast<int>(blockIdx.x % task.n_thread_blocks) * kGemvWarps + static_cast<int>(threadIdx.x / 32)) * kRows;
  const int x_row = static_cast<int>(pick.row_of_x(pair)), row_step = task.n_thread_blocks * kGemvWarps * kRows;
  float* y = task.y + int64_t{pair} * tasks.d_out - first;
  const auto put = [&](int row, float value) { y[row] = task.bias == nullptr ? value : value + task.bias[row]; };
  List::with(task.format, [&]<class Format>(Format) {
    if constexpr (kShort) {
      ShortRow<Format> short_row(task.w, task.n_blocks);
      const auto own_of = [&](int row) {
        return min(row + static_cast<int>(threadIdx.x % 32 / 4), task.n_rows - 1);
      };  // past the end: read and left out
      if (row_0 < task.n_rows) short_row.begin(own_of(row_0));
      wait_for_previous();
      for (int row = row_0; row < task.n_rows; row += row_step) {
        const int own = own_of(row);
        const float value = short_row.template multiply<kPlanes>(tasks.x, x_row);
        if (row + row_step < task.n_rows) short_row.begin(own_of(row + row_step));
        if (threadIdx.x % 4 == 0 && row + static_cast<int>(threadIdx.x % 32 / 4) < task.n_rows) put(own, value);
      }
    } else {
      run_rows<Format, kPlanes, 1>(GemvMatrices<1>{{&task.w}, task.n_rows, task.n_blocks}, tasks.x, x_row, 1, row_0,
                                   row_step, [&](int, int, int row, float value) {
                                     if (threadIdx.x % 32 == 0) put(row, value);
                                   });
    }
  });
}

template <class List, int kPlanes>
auto expert_kernel(bool is_short) {
  if constexpr (kIsSuper<List>) {
    if (is_short) return expert_gemv_kernel<List, kPlanes, true>;
  }
  return expert_gemv_kernel<List, kPlanes, false>;
}

// Up to two products.
template <class List>
void launch_experts(std::span<const ExpertTask> products, const quant::Activations& x, const Queue& queue) {
  const ExpertTask& t = products.front();
  const auto n_blocks = static_cast<int32_t>(t.d_in / x.block());
  const bool is_short = kIsSuper<List> && n_blocks <= kShortBlocksMax;
  constexpr int64_t kBlocksMin = 16;  // of threads, for a pair
  const int64_t rows_of_block = kGemvWarps * (is_short ? kShortRows : 1),
                whole = (t.d_out + rows_of_block - 1) / rows_of_block,
                room = kGemvBlocksMax / (t.n_pairs * static_cast<int64_t>(products.size())),
                share = std::min(whole, std::max(room, kBlocksMin));
  ExpertTasks tasks{{},
                    {ExpertPick(products.front()), ExpertPick(products.back())},
                    x,
                    static_cast<int32_t>(t.d_out),
                    t.routes_are_settled};
  for (size_t i = 0; i < products.size(); ++i) {
    const ExpertTask& product = products[i];
    const int format = List::find(product.w->dtype);
    tasks.task[i] = {product.w->parts, format, 0, n_blocks, 0, static_cast<int32_t>(share), product.bias, product.y};
  }
  const dim3 grid(static_cast<unsigned>(t.n_pairs * share), static_cast<unsigned>(products.size()));
  const auto kernel = x.planes == 2 ? expert_kernel<List, 2>(is_short) : expert_kernel<List, 1>(is_short);
  take_decode_cut(kernel);
  launch(queue, kernel, grid, 32 * kGemvWarps, 0, tasks);
}

}  // namespace

void expert_linear_gemv(std::span<const ExpertTask> products, const quant::Activations& x, const Queue& queue) {
  x.kind == quant::Activation::a256 ? launch_experts<GemvFormats256>(products, x, queue)
                                    : launch_experts<GemvFormats32>(products, x, queue);
}

}  // namespace assay::backend::cuda
