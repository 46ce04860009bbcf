// Decode: products of one or a few tokens, bound by reading the weights. A warp takes a row; four neighbouring lanes
// take one of the 8 chunks of the contract and walk its blocks, so every chain is summed in place and the tree is three
// shuffles at the end.
//
//   warp, a row        lanes 0 1 2 3     4 5 6 7     ..     28 29 30 31
//                      chunk 0           chunk 1            chunk 7          of contract dot/1
//   superblocks        the four lanes share one: a quarter of its integers each, summed by two shuffles, one term, one chain
//   blocks of 32       each lane has the next one of four: four terms, which enter the chunk's chain in order
//   memory             weights straight from memory to registers, two steps ahead; activations from the caches
#include <algorithm>

#include "backend/cuda/decode/gemv_formats.cuh"
#include "backend/cuda/experts/expert_pick.cuh"
#include "backend/cuda/linear/format_list.cuh"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/lanes.h"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreadBlocksPerSm = 4;
constexpr int64_t kThreadBlocksMax = 132 * kThreadBlocksPerSm;  // that run at once on an H200

struct GemvTask {
  Parts w;
  int32_t format = 0;  // index into the list of formats of the kind
  int32_t n_rows = 0, n_blocks = 0;
  int32_t first_block = 0, n_thread_blocks = 0;  // of threads
  const float* bias = nullptr;
  float* y = nullptr;
};

struct GemvTasks {
  GemvTask task[kLinearsMax];
  int32_t n = 0;
  quant::Activations x;
  int32_t n_tokens = 0;
};

__device__ int32_t group_sum(int32_t x) {  // over the four lanes of a chunk
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}

// A lane's share of a block of activations.
template <class Format, int kPlanes>
struct LaneX {
  Words low[kPlanes], high[Format::kBlock == 256 ? kPlanes : 1];  // blocks of 32: low alone
  int32_t sums[kPlanes][Format::kBlock == 256 ? 4 : 1];           // of 16 elements each; of the 32
  float d;

  __device__ void load(const quant::Activations& x, int64_t at, int part) {
    d = x.d[at];
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const int8_t* q = (plane == 0 ? x.q : x.l) + at * Format::kBlock;
      const int16_t* of_groups = plane == 0 ? x.q_sums : x.l_sums;
      if constexpr (Format::kBlock == 256) {
        const auto* a = reinterpret_cast<const uint4*>(q + Format::low_run(part));
        const auto* b = reinterpret_cast<const uint4*>(q + Format::high_run(part));
        low[plane] = words_of(a[0], a[1]);
        high[plane] = words_of(b[0], b[1]);
        const auto* pairs = reinterpret_cast<const short2*>(of_groups + at * 16);
        const short2 first = pairs[Format::low_run(part) / 32], second = pairs[Format::high_run(part) / 32];
        sums[plane][0] = first.x, sums[plane][1] = first.y, sums[plane][2] = second.x, sums[plane][3] = second.y;
      } else {
        const auto* a = reinterpret_cast<const uint4*>(q);
        low[plane] = words_of(a[0], a[1]);
        sums[plane][0] = of_groups[at];
      }
    }
  }
};

// Superblocks: the four lanes share a block.
template <class Format, int kPlanes>
__device__ float term_of(const Lane256& lane, const LaneX<Format, kPlanes>& x) {
  int32_t i[kPlanes], m[kPlanes];
#pragma unroll
  for (int plane = 0; plane < kPlanes; ++plane) {
    const int32_t* sums = x.sums[plane];
    m[plane] = 0;
    if constexpr (Format::kHasMin) {
      i[plane] = lane.scale[0] * dot_8(lane.low, x.low[plane]) + lane.scale[2] * dot_8(lane.high, x.high[plane]);
      m[plane] = group_sum(lane.min[0] * (sums[0] + sums[1]) + lane.min[2] * (sums[2] + sums[3]));
    } else {
      i[plane] = lane.scale[0] * (dot_4(lane.low.w, x.low[plane].w) - lane.offset * sums[0]) +
                 lane.scale[1] * (dot_4(lane.low.w + 4, x.low[plane].w + 4) - lane.offset * sums[1]) +
                 lane.scale[2] * (dot_4(lane.high.w, x.high[plane].w) - lane.offset * sums[2]) +
                 lane.scale[3] * (dot_4(lane.high.w + 4, x.high[plane].w + 4) - lane.offset * sums[3]);
    }
    i[plane] = group_sum(i[plane]);
  }
  const float f = kPlanes == 2 ? quant::join_planes(i[0], i[kPlanes - 1]) : static_cast<float>(i[0]);
  const float g = kPlanes == 2 ? quant::join_planes(m[0], m[kPlanes - 1]) : static_cast<float>(m[0]);
  return quant::block_term(Format::kHasMin, lane.scales, f, g);
}

// Blocks of 32: each of the four lanes has its own.
template <class Format, int kPlanes>
__device__ float term_of(const Lane32& lane, const LaneX<Format, kPlanes>& x) {
  int32_t i[kPlanes], m[kPlanes];
#pragma unroll
  for (int plane = 0; plane < kPlanes; ++plane) {
    i[plane] = dot_8(lane.w, x.low[plane]) - lane.offset * x.sums[plane][0];
    m[plane] = Format::kHasMin ? x.sums[plane][0] : 0;
  }
  const float f = kPlanes == 2 ? quant::join_planes(i[0], i[kPlanes - 1]) : static_cast<float>(i[0]);
  const float g = kPlanes == 2 ? quant::join_planes(m[0], m[kPlanes - 1]) : static_cast<float>(m[0]);
  return quant::block_term(Format::kHasMin, lane.scale, f, g);
}

// Up to kTokens rows of activations, and where their results go: row r of the matrix to y[t * y_width + r].
struct GemvTokens {
  int x_row, n;
  float* y;
  int64_t y_width;
};

// Rows row, row + row_step, ... of a matrix against kTokens tokens, by a warp. The weights of the next two steps are on
// their way while the current ones are multiplied, from row to row too.
template <class Format, int kPlanes, int kTokens>
__device__ void run_rows(const GemvTask& task, const quant::Activations& x, const GemvTokens& tokens, int row,
                         int row_step) {
  const int lane = threadIdx.x % 32, chunk = lane / 4, part = lane % 4;
  constexpr int kStep = Format::kBlock == 256 ? 1 : 4;  // blocks that the four lanes take at a time
  const int offset = kStep == 4 ? part : 0;
  const int begin = static_cast<int>(quant::chunk_begin(chunk, task.n_blocks)),
            end = static_cast<int>(quant::chunk_begin(chunk + 1, task.n_blocks));
  const int longest = (task.n_blocks + 7) / 8;  // all lanes walk as far, for the shuffles
  const auto block_at = [&](int i) {
    return min(begin + i + offset, task.n_blocks - 1);
  };  // past the chunk's end: read and left out
  const auto load = [&](int of_row, int i) {
    return Format::load(task.w, int64_t{of_row} * task.n_blocks + block_at(i), part);
  };
  // The step after step i of a row: the row and the step, a step long.
  struct Step {
    int row, i;
  };
  const auto after = [&](Step s) {
    return s.i + kStep < longest ? Step{s.row, s.i + kStep} : Step{s.row + row_step, 0};
  };
  Step ahead = after({row, 0});
  typename Format::Raw raw, next;
  if (row < task.n_rows) raw = load(row, 0);
  if (ahead.row < task.n_rows) next = load(ahead.row, ahead.i);
  wait_for_previous();
  LaneX<Format, kPlanes> share;
  const bool x_stays = kTokens == 1 && longest <= kStep;  // a row is one step: its activations are loaded once
  if (x_stays) share.load(x, int64_t{tokens.x_row} * task.n_blocks + block_at(0), part);
  for (; row < task.n_rows; row += row_step) {
    float c[kTokens] = {};
    for (int i = 0; i < longest; i += kStep) {
      const int at = block_at(i);
      const auto w = Format::unpack(raw, part);
      raw = next;
      ahead = after(ahead);
      if (ahead.row < task.n_rows) next = load(ahead.row, ahead.i);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const int64_t x_at = int64_t{tokens.x_row + min(t, tokens.n - 1)} * task.n_blocks + at;
        if (!x_stays) share.load(x, x_at, part);
        const float term = term_of<Format, kPlanes>(w, share), d = share.d;
        if constexpr (kStep == 1) {
          const float next = num::fma(d, term, c[t]);
          c[t] = begin + i < end ? next : c[t];
        } else {
#pragma unroll
          for (int s = 0; s < 4; ++s) {  // the chain goes through the four lanes' blocks
            const float next = num::fma(__shfl_sync(kWholeWarp, d, s, 4), __shfl_sync(kWholeWarp, term, s, 4), c[t]);
            c[t] = begin + i + s < end ? next : c[t];
          }
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float y = c[t];
#pragma unroll
      for (int width = 4; width <= 16; width *= 2)
        y = y + __shfl_xor_sync(kWholeWarp, y, width);  // the tree over the chunks
      if (lane == 0 && t < tokens.n) {
        tokens.y[t * tokens.y_width + row] = task.bias == nullptr ? y : y + task.bias[row];
      }
    }
  }
}

// Rows of a few superblocks, as an expert's last product has them: four lanes walk a whole row, so a warp has eight at
// a time and no lane is without a block. A chunk has one block at most: each is a chain of its own, and the tree over
// the chunks needs no other lane. Rows row, row + row_step, ... are the first of a warp's eight.
constexpr int kShortBlocksMax = 4, kShortRows = 8;

template <class Format, int kPlanes>
__device__ void run_short_rows(const GemvTask& task, const quant::Activations& x, const GemvTokens& tokens, int row,
                               int row_step) {
  constexpr int kAhead = 3;
  const int lane = threadIdx.x % 32, part = lane % 4, n_blocks = task.n_blocks;
  const auto own_of = [&](int first) {
    return min(first + lane / 4, task.n_rows - 1);
  };  // past the end: read and left out
  const auto load = [&](int first, int b) { return Format::load(task.w, int64_t{own_of(first)} * n_blocks + b, part); };
  typename Format::Raw raw[kAhead] = {};
  const auto begin = [&](int first) {
#pragma unroll
    for (int b = 0; b < kAhead; ++b) {
      if (first < task.n_rows && b < n_blocks) raw[b] = load(first, b);
    }
  };
  begin(row);
  wait_for_previous();
  for (; row < task.n_rows; row += row_step) {
    float c[8] = {};
    for (int b = 0; b < n_blocks; ++b) {
      const auto w = Format::unpack(raw[0], part);
#pragma unroll
      for (int i = 0; i + 1 < kAhead; ++i) raw[i] = raw[i + 1];
      if (b + kAhead < n_blocks) raw[kAhead - 1] = load(row, b + kAhead);
      LaneX<Format, kPlanes> share;
      share.load(x, int64_t{tokens.x_row} * n_blocks + b, part);
      const float sum = num::fma(share.d, term_of<Format, kPlanes>(w, share), 0.0f);
      const int chunk = (8 * (b + 1) - 1) / n_blocks;  // the one that ends behind block b
#pragma unroll
      for (int i = 0; i < 8; ++i) c[i] = i == chunk ? sum : c[i];
    }
    begin(row + row_step);
    const int own = own_of(row);
    const float y = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
    if (part == 0 && row + lane / 4 < task.n_rows) tokens.y[own] = task.bias == nullptr ? y : y + task.bias[own];
  }
}

template <class... F>
struct Formats : FormatList<F...> {
  static constexpr int kBlock = std::max({F::kBlock...});  // of each
  template <int kPlanes>
  __device__ static void run_short(const GemvTask& task, const quant::Activations& x, const GemvTokens& tokens, int row,
                                   int row_step) {
    int i = 0;
    ((task.format == i++ ? run_short_rows<F, kPlanes>(task, x, tokens, row, row_step) : void()), ...);
  }
  template <int kPlanes, int kTokens>
  __device__ static void run(const GemvTask& task, const quant::Activations& x, const GemvTokens& tokens, int row,
                             int row_step) {
    int i = 0;
    ((task.format == i++ ? run_rows<F, kPlanes, kTokens>(task, x, tokens, row, row_step) : void()), ...);
  }
};
using Formats32 = Formats<GemvQ4_0, GemvQ4_1, GemvQ8_0>;
using Formats256 = Formats<GemvQ4_K, GemvQ5_K, GemvQ6_K>;

template <class List, int kPlanes, int kTokens>
__global__ void __launch_bounds__(32 * kWarps, kTokens == 1 ? kThreadBlocksPerSm : 3)
    gemv_kernel(const __grid_constant__ GemvTasks tasks) {
  let_next_start();
  int i = 0;
  while (i + 1 < tasks.n && static_cast<int>(blockIdx.x) >= tasks.task[i + 1].first_block) ++i;
  const GemvTask& task = tasks.task[i];
  const int row = (static_cast<int>(blockIdx.x) - task.first_block) * kWarps + static_cast<int>(threadIdx.x / 32);
  const int first = static_cast<int>(blockIdx.y) * kTokens;
  const GemvTokens tokens{first, min(tasks.n_tokens - first, kTokens), task.y + int64_t{first} * task.n_rows,
                          task.n_rows};
  List::template run<kPlanes, kTokens>(task, tasks.x, tokens, row, task.n_thread_blocks * kWarps);
}

// One product by experts or two of the same rows of activations (blockIdx.y), whose experts have as many rows.
struct ExpertTasks {
  GemvTask task[2];
  ExpertPick pick[2];
  quant::Activations x;
  int32_t d_out;
  bool routes_are_settled;
};

// The rows of a pair's expert (expert_linear.h): as many blocks of threads for each pair. kShort: run_short_rows.
// The next kernel starts when this one's wait is over, for one behind it may rely on that: its routes are settled then,
// and it fetches its weights before it waits. Their place in memory had others in it before, so they are not read
// through the first-level cache.
template <class List, int kPlanes, bool kShort>
__global__ void __launch_bounds__(32 * kWarps, kThreadBlocksPerSm)
    expert_gemv_kernel(const __grid_constant__ ExpertTasks tasks) {
  if (!tasks.routes_are_settled) wait_for_previous();
  let_next_start();
  GemvTask task = tasks.task[blockIdx.y];
  const ExpertPick& pick = tasks.pick[blockIdx.y];
  const uint32_t pair = blockIdx.x / static_cast<uint32_t>(task.n_thread_blocks);
  const auto first = static_cast<int>(pick.row_begin(pick.settled_expert_of(pair)));
  task.n_rows = first + tasks.d_out;
  constexpr int kRows = kShort ? kShortRows : 1;  // of a warp at a time
  const int row =
      first +
      (static_cast<int>(blockIdx.x % task.n_thread_blocks) * kWarps + static_cast<int>(threadIdx.x / 32)) * kRows;
  const GemvTokens tokens{static_cast<int>(pick.row_of_x(pair)), 1, task.y + int64_t{pair} * tasks.d_out - first, 0};
  const int row_step = task.n_thread_blocks * kWarps * kRows;
  if constexpr (kShort) {
    List::template run_short<kPlanes>(task, tasks.x, tokens, row, row_step);
  } else {
    List::template run<kPlanes, 1>(task, tasks.x, tokens, row, row_step);
  }
}

template <class List, int kPlanes>
auto expert_kernel(bool is_short) {
  if constexpr (List::kBlock == 256) {
    if (is_short) return expert_gemv_kernel<List, kPlanes, true>;
  }
  return expert_gemv_kernel<List, kPlanes, false>;
}

// Up to two products.
template <class List>
void launch_experts(std::span<const ExpertTask> products, const quant::Activations& x, const Queue& queue) {
  const ExpertTask& t = products.front();
  const auto n_blocks = static_cast<int32_t>(t.d_in / x.block());
  const bool is_short = List::kBlock == 256 && n_blocks <= kShortBlocksMax;
  constexpr int64_t kBlocksMin = 16;  // of threads, for a pair
  const int64_t rows_of_block = kWarps * (is_short ? kShortRows : 1),
                whole = (t.d_out + rows_of_block - 1) / rows_of_block,
                room = kThreadBlocksMax / (t.n_pairs * static_cast<int64_t>(products.size())),
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
  launch(queue, kernel, grid, 32 * kWarps, 0, tasks);
}

template <class List, int kPlanes>
void launch_tasks(const GemvTasks& tasks, int n_blocks, const Queue& queue) {
  constexpr int kTokensMany = 4;
  if (tasks.n_tokens == 1) {
    launch(queue, gemv_kernel<List, kPlanes, 1>, dim3(static_cast<unsigned>(n_blocks)), 32 * kWarps, 0, tasks);
  } else {
    const auto tiles = static_cast<unsigned>((tasks.n_tokens + kTokensMany - 1) / kTokensMany);
    launch(queue, gemv_kernel<List, kPlanes, kTokensMany>, dim3(static_cast<unsigned>(n_blocks), tiles), 32 * kWarps, 0,
           tasks);
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
    const int64_t whole = (linear.w->rows + kWarps - 1) / kWarps,
                  room = (kThreadBlocksMax * linear.w->rows + rows_of_all - 1) / rows_of_all;
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
  return cudaFuncGetAttributes(&attributes, gemv_kernel<Formats32, 1, 1>) == cudaSuccess ? attributes.ptxVersion : 0;
}

void expert_linear_gemv(std::span<const ExpertTask> products, const quant::Activations& x, const Queue& queue) {
  x.kind == quant::Activation::a256 ? launch_experts<Formats256>(products, x, queue)
                                    : launch_experts<Formats32>(products, x, queue);
}

void linear_gemv(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens,
                 const Queue& queue) {
  x.kind == quant::Activation::a256 ? launch_list<Formats256>(linears, x, n_tokens, queue)
                                    : launch_list<Formats32>(linears, x, n_tokens, queue);
}

}  // namespace assay::backend::cuda
