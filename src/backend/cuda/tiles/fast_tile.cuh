// The kernel of fast_tiles (fast_linear.h) on Hopper (sm_90a): clusters of 8 blocks of 12 warps stay on their
// multiprocessors and take unit after unit of tiles of 128 rows x 128 tokens, neighbours in both directions. What lies
// between the second-level cache and the multiprocessors binds, so each block copies a part of its rows to the shared
// memory of all blocks with the same rows, and so of its tokens. One thread starts the copies, two groups of four warps
// multiply 64 rows each. The tensor cores are given the next chunk, or the next tile, before the sums of the one before
// are touched: those move through three sets of registers, sums of two and four chunks through shared memory.
//
// Clusters of 8 leave multiprocessors over, since groups of them share no multiple of 8. A second grid of clusters of 2
// takes these, and the units that the first leaves to it. It begins once the first has waited for what both read, and
// ends after it.
//
// What multiplies is inlined by force: a call between products makes the compiler end each before the next (its message
// C7510), half the speed. kTree false: one chain over all of K, which no promise allows; for bench/micro_cuda, which
// says what the tree costs.
#pragma once

#include <algorithm>

#include "backend/cuda/peers/copy_map.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/tiles/fast_linear.h"
#include "backend/cuda/tiles/wgmma_steps.cuh"
#include "quant/activations.h"

namespace assay::backend::cuda::fast_tile {

constexpr int kGroupThreads = 128, kThreads = 3 * kGroupThreads;
constexpr int kUnitTiles = 8,
              kFewBlocks = 2;  // tiles of a unit; blocks of the clusters that fill what is left of the device
constexpr int kRows = 128, kTokens = 128;
constexpr int kDepth = 64;  // elements of K of a stage: two blocks of 32
constexpr int kStages = 5;
constexpr uint32_t kOperandBytes = 128 * kDepth * 2, kStageBytes = 2 * kOperandBytes, kHalfBytes = kOperandBytes / 2;
constexpr uint32_t kWaiting = kStages * kStageBytes, kBarriers = kWaiting + kRows * kTokens * 4,
                   kBytes = kBarriers + 2 * kStages * 8;
static_assert(kBytes <= 227 * 1024);

struct TileRun {
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_width = 0;
  int32_t n_rows = 0, first_unit = 0;
};
struct TileTask {
  TileRun run[kFastRowsMax];
  int32_t n_runs = 0, n_blocks = 0, n_tokens = 0;
  int32_t unit_rows = 0, unit_tokens = 0, n_token_units = 0;  // tiles of a unit, 8 in all
  int32_t first = 0, end = 0;  // of this grid, in parts of a unit that a cluster takes at a time
  int32_t rows = 0,
          tokens = 0;      // tiles of a cluster; block r has tile r / tokens of the rows, r % tokens of the tokens
  bool is_second = false;  // of two grids
  __host__ __device__ int n_parts() const { return kUnitTiles / (rows * tokens); }  // of a unit
};
struct Maps {
  CUtensorMap rows[kFastRowsMax], tokens;
};

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of the cluster; what they wrote before is seen after.
__device__ inline void meet_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" : : : "memory");
}
// Arrives at the barrier of the block with this rank. What it allows is a copy over what the tensor cores have read,
// which their group's end tells; so nothing is released to the whole cluster, which would wait for all memory.
__device__ inline void arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}\n"
      :
      : "r"(barrier), "r"(rank)
      : "memory");
}
// copy_box to the same place of the blocks whose bits are set; the bytes count at the barrier of each.
__device__ inline void copy_box_to_all(uint32_t to, const CUtensorMap& map, int first, int second, uint32_t barrier,
                                       uint32_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;"
      :
      : "r"(to), "l"(&map), "r"(first), "r"(second), "r"(barrier), "h"(static_cast<uint16_t>(ranks))
      : "memory");
}

// 64 rows x 16 times 16 x 128 columns, both in shared memory. A macro, for the two types differ in a word among 64
// operands.
#define ASSAY_MULTIPLY_HALVES(type)                                                                                    \
  asm volatile(                                                                                                        \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                                                       \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                                     \
      " {"                                                                                                             \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                         \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                               \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                               \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0;\n}\n" \
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]),              \
        "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),          \
        "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]),       \
        "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]),       \
        "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]),       \
        "+f"(sum[35]), "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),       \
        "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]), "+f"(sum[48]),       \
        "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), "+f"(sum[55]),       \
        "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]), "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]),       \
        "+f"(sum[63])                                                                                                  \
      : "l"(rows), "l"(tokens))

template <bool kBf16>
__device__ __forceinline__ void multiply_halves(float (&sum)[64], uint64_t rows, uint64_t tokens) {
  if constexpr (kBf16) {
    ASSAY_MULTIPLY_HALVES("bf16");
  } else {
    ASSAY_MULTIPLY_HALVES("f16");
  }
}
#undef ASSAY_MULTIPLY_HALVES

struct Place {
  int run, row_0, token_0;
};
// The tile of the block in the cluster, and the parts that the cluster takes.
struct Seat {
  int rank, row, token, first, step;
  __device__ explicit Seat(const TileTask& task)
      : rank(static_cast<int>(cluster_rank())), row(rank / task.tokens), token(rank % task.tokens) {
    const int n = task.rows * task.tokens;
    first = task.first + static_cast<int>(blockIdx.x) / n;
    step = static_cast<int>(gridDim.x) / n;
  }
  __device__ Place place_of(const TileTask& task, int part) const {
    const int unit = part / task.n_parts(), in_unit = part % task.n_parts(), across = task.unit_tokens / task.tokens;
    int i = 0;
    while (i + 1 < task.n_runs && unit >= task.run[i + 1].first_unit) ++i;
    const int at = unit - task.run[i].first_unit;
    return {i, (at / task.n_token_units * task.unit_rows + in_unit / across * task.rows + row) * kRows,
            (at % task.n_token_units * task.unit_tokens + in_unit % across * task.tokens + token) * kTokens};
  }
};

struct Stages {
  uint32_t base;
  __device__ uint32_t rows(int stage) const { return base + static_cast<uint32_t>(stage) * kStageBytes; }
  __device__ uint32_t tokens(int stage) const { return rows(stage) + kOperandBytes; }
  __device__ uint32_t full(int stage) const { return base + kBarriers + static_cast<uint32_t>(stage) * 16; }
  __device__ uint32_t free(int stage) const { return full(stage) + 8; }
  __device__ void make_barriers(const TileTask& task) const {
    for (int i = 0; i < kStages; ++i) {
      make_barrier(full(i), 1);
      make_barrier(free(i), static_cast<uint32_t>(
                                8 * (task.rows + task.tokens - 1)));  // multiplying warps of the blocks copied to
    }
    barriers_made();
  }
};

__device__ inline void fill(const TileTask& task, const Maps& maps, const Stages& s, const Seat& seat) {
  const int rows = kRows / task.tokens, tokens = kTokens / task.rows;  // that this block copies
  const uint32_t same_rows = ((1u << task.tokens) - 1) << (seat.row * task.tokens);
  uint32_t same_tokens = 0;
  for (int i = 0; i < task.rows; ++i) same_tokens |= 1u << (i * task.tokens + seat.token);
  Ring ring;
  for (int part = seat.first; part < task.end; part += seat.step) {
    const Place at = seat.place_of(task, part);
    for (int block = 0; block < task.n_blocks; block += 2) {
      const uint32_t full = s.full(ring.stage);
      wait_phase(s.free(ring.stage), ring.phase ^ 1);
      arrive_with_bytes(full, kStageBytes);
      copy_box_to_all(s.rows(ring.stage) + static_cast<uint32_t>(seat.token * rows) * 128, maps.rows[at.run],
                      block * 64, at.row_0 + seat.token * rows, full, same_rows);
      copy_box_to_all(s.tokens(ring.stage) + static_cast<uint32_t>(seat.row * tokens) * 128, maps.tokens, block * 64,
                      at.token_0 + seat.row * tokens, full, same_tokens);
      ring.next(kStages);
    }
  }
}

template <bool kBf16, bool kTree>
class Multiplier {
 public:
  using Sums = float[64];

  __device__ Multiplier(const TileTask& task, const Stages& stages, const Seat& seat, float4* waiting, int t)
      : task_(task), s_(stages), seat_(seat), waiting_(waiting), t_(t) {
    const int lane = t % 32,
              other = lane - task.tokens;  // who copies to this block: those with its rows, the others with its tokens
    writer_ =
        other < 0 ? seat.row * task.tokens + lane : (other + (other >= seat.row ? 1 : 0)) * task.tokens + seat.token;
    if (lane >= task.rows + task.tokens - 1) writer_ = -1;
  }

  __device__ __forceinline__ void run() {
    Sums a, b, c;
    for (int part = seat_.first; part < task_.end; part += seat_.step) {
      int block = sum_first_chunk(part, b, a);
      if constexpr (!kTree) {
        wait_products<0>();
        release();
#pragma unroll
        for (int i = 0; i < 64; ++i) a[i] = b[i];
        continue;
      }
      block = sum_chunk(1, block, c, [] {});
      block = sum_chunk(2, block, a, [&] { let_wait([&](int i) { return b[i] + c[i]; }); });
      block = sum_chunk(3, block, b, [] {});
      block = sum_chunk(4, block, c, [&] { let_wait_added([&](int i) { return a[i] + b[i]; }); });
      block = sum_chunk(5, block, a, [] {});
      block = sum_chunk(6, block, b, [&] {
#pragma unroll
        for (int i = 0; i < 64; ++i) c[i] = c[i] + a[i];
      });
      sum_chunk(7, block, a, [] {});
      wait_products<0>();
      release();
#pragma unroll
      for (int i = 0; i < 64; ++i) a[i] = c[i] + (b[i] + a[i]);
    }
    const int n = (task_.end - seat_.first + seat_.step - 1) / seat_.step;
    if (n > 0) write_pieces(seat_.place_of(task_, seat_.first + (n - 1) * seat_.step), 0, 8, a);
  }

 private:
  __device__ static void clear(Sums& sum) {
#pragma unroll
    for (float& x : sum) x = 0.0f;
  }
  __device__ int end_of(int chunk) const {
    return !kTree ? task_.n_blocks : static_cast<int>(quant::chunk_begin(chunk + 1, task_.n_blocks));
  }

  // Sums a chunk from `block` on; `finish` deals with the sums of the chunk before, whose products end while the first
  // of this are made.
  template <class Finish>
  __device__ __forceinline__ int sum_chunk(int chunk, int block, Sums& sum, Finish finish) {
    const int end = end_of(chunk);
    clear(sum);
    if (block < end) {
      block = multiply_stage(sum, block, end);
    } else {
      wait_products<0>();
    }
    finish();
    while (block < end) block = multiply_stage(sum, block, end);
    return block;
  }
  // The same for a tile's first chunk, during which the tile before is written piece by piece; `last`: the sums of its
  // last four chunks.
  __device__ __forceinline__ int sum_first_chunk(int part, Sums& sum, const Sums& last) {
    const int end = end_of(0);
    int block = 0;
    clear(sum);
    const bool has_last = part != seat_.first;
    const Place place = seat_.place_of(task_, has_last ? part - seat_.step : part);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (block < end) block = multiply_stage(sum, block, end);
      if (has_last) write_pieces(place, i, i + 1, last);
    }
    while (block < end) block = multiply_stage(sum, block, end);
    return block;
  }

  // Both blocks of a stage, or one where the chunk ends between them or begins there. The products run on while the
  // next are made ready; those of the stage before have then been made.
  __device__ __forceinline__ int multiply_stage(Sums& sum, int block, int end) {
    const int half = block % 2;
    if (half == 0) wait_phase(s_.full(ring_.stage), ring_.phase);
    const uint64_t step = static_cast<uint64_t>(4 * half);
    const uint64_t rows =
        swizzled_columns(s_.rows(ring_.stage) + static_cast<uint32_t>(t_ / kGroupThreads) * kHalfBytes) + step;
    const uint64_t tokens = swizzled_columns(s_.tokens(ring_.stage)) + step;
    const bool both = half == 0 && block + 1 < end;
    // Each way through is a group of products of its own: where ways meet within a group, the compiler ends the
    // products before they join.
    if (both) {
      begin_products();
      multiply_halves<kBf16>(sum, rows, tokens);
      multiply_halves<kBf16>(sum, rows + 2, tokens + 2);
      multiply_halves<kBf16>(sum, rows + 4, tokens + 4);
      multiply_halves<kBf16>(sum, rows + 6, tokens + 6);
      end_products();
      wait_products<1>();
    } else {
      begin_products();
      multiply_halves<kBf16>(sum, rows, tokens);
      multiply_halves<kBf16>(sum, rows + 2, tokens + 2);
      end_products();
      wait_products<1>();
    }
    if (half == 0 && !both && block + 1 < task_.n_blocks) return block + 1;
    if (block >= 2) release();
    to_release_ = ring_.stage;
    ring_.next(kStages);
    return block + (both ? 2 : 1);
  }
  __device__ void release() const {
    __syncwarp();
    if (writer_ >= 0) arrive_at(s_.free(to_release_), static_cast<uint32_t>(writer_));
  }

  template <class Value>
  __device__ void let_wait(Value value) const {
#pragma unroll
    for (int i = 0; i < 16; ++i)
      waiting_[i * 2 * kGroupThreads + t_] = {value(4 * i), value(4 * i + 1), value(4 * i + 2), value(4 * i + 3)};
  }
  template <class Value>
  __device__ void let_wait_added(Value value) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float4 two = waiting_[i * 2 * kGroupThreads + t_];
      waiting_[i * 2 * kGroupThreads + t_] = {two.x + value(4 * i), two.y + value(4 * i + 1), two.z + value(4 * i + 2),
                                              two.w + value(4 * i + 3)};
    }
  }
  // An eighth of the tile's outputs each: 16 tokens.
  __device__ void write_pieces(const Place& at, int first, int end, const Sums& last) const {
    const TileRun& run = task_.run[at.run];
    const int row = at.row_0 + t_ / 32 * 16 + t_ % 32 / 4, token = at.token_0 + 2 * (t_ % 4);
    const int n_rows = run.n_rows - row, n_tokens = task_.n_tokens - token;
    const float bias[2] = {run.bias != nullptr && n_rows > 0 ? run.bias[row] : 0.0f,
                           run.bias != nullptr && n_rows > 8 ? run.bias[row + 8] : 0.0f};
    float* y = run.y + token * run.y_width + row;
#pragma unroll
    for (int n = 2 * first; n < 2 * end; ++n) {
      const float4 four = kTree ? waiting_[n * 2 * kGroupThreads + t_] : float4{};
      const float sums[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float v = sums[e] + last[4 * n + e];
        if (run.bias != nullptr) v = v + bias[e / 2];
        if (8 * n + e % 2 < n_tokens && e / 2 * 8 < n_rows) y[(8 * n + e % 2) * run.y_width + e / 2 * 8] = v;
      }
    }
  }

  const TileTask& task_;
  const Stages s_;
  const Seat seat_;
  float4* const waiting_;  // sums of the first two or four chunks
  const int t_;            // of the two groups' threads
  Ring ring_;
  int to_release_ = 0, writer_ = -1;
};

template <bool kBf16, bool kTree>
__global__ void __launch_bounds__(kThreads, 1)
    fast_tile_kernel(const __grid_constant__ TileTask task, const __grid_constant__ Maps maps) {
  extern __shared__ __align__(1024) std::byte memory[];
  const Stages stages{static_cast<uint32_t>(__cvta_generic_to_shared(memory))};
  if (threadIdx.x == 0) stages.make_barriers(task);
  __syncthreads();
  meet_cluster();
  if (!task.is_second) wait_for_previous();  // a second grid starts when the first has waited
  let_next_start();
  const int t = static_cast<int>(threadIdx.x);
  const Seat seat(task);
  if (t < kGroupThreads) {
    give_registers<24>();
    if (t == 0) fill(task, maps, stages, seat);
  } else {
    take_registers<240>();
    Multiplier<kBf16, kTree>(task, stages, seat, reinterpret_cast<float4*>(memory + kWaiting), t - kGroupThreads).run();
  }
  meet_cluster();                           // the others may still arrive here
  if (task.is_second) wait_for_previous();  // who waits for the second grid waits for both
}

template <bool kBf16, bool kTree>
struct Grid {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  int n_at_once = 0;  // clusters

  Grid(int n_cluster_blocks, const Queue& queue) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {static_cast<unsigned>(n_cluster_blocks), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(static_cast<unsigned>(n_cluster_blocks));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kBytes;
    config.stream = queue.stream;
    config.attrs = attributes;
    config.numAttrs = queue.overlap ? 2 : 1;
    if (cudaFuncSetAttribute(fast_tile_kernel<kBf16, kTree>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kBytes)) == cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&n_at_once, fast_tile_kernel<kBf16, kTree>, &config) == cudaSuccess) {
      return;
    }
    cudaGetLastError();  // forgotten: it is an answer
    n_at_once = 0;
  }
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;
  void run(const TileTask& task, const Maps& maps) {
    const int n_cluster_blocks = task.rows * task.tokens;
    if (task.end == task.first) return;
    config.gridDim = dim3(static_cast<unsigned>(n_cluster_blocks * std::min(task.end - task.first, n_at_once)));
    cudaLaunchKernelEx(&config, fast_tile_kernel<kBf16, kTree>, task, maps);
  }
};

// Units of the first grid, where clusters of 2 take the rest in no more turns.
inline int units_of_first(int n_units, int n_clusters, int n_few) {
  const int n_parts = kUnitTiles / kFewBlocks;
  int turns = 1;
  while (std::max(n_units - turns * n_clusters, 0) * n_parts > turns * n_few) ++turns;
  return std::min(n_units, turns * n_clusters);
}

struct Products {
  const Hopper& hopper;
  std::span<const FloatRows> runs;
  int64_t cols;
  const void* halves;

  // Maps for clusters of these shapes.
  bool make_maps(const TileTask& task, Maps& maps) const {
    bool made = make_map(hopper, halves, 2 * cols, task.n_tokens, 2 * kDepth, kTokens / task.rows, maps.tokens);
    for (size_t i = 0; i < runs.size(); ++i) {
      made &= make_map(hopper, runs[i].w, 2 * cols, runs[i].n_rows, 2 * kDepth, kRows / task.tokens, maps.rows[i]);
    }
    return made;
  }

  template <bool kBf16, bool kTree>
  void start(TileTask task, int n_units, const Queue& queue) const {
    Grid<kBf16, kTree> grid(kUnitTiles, queue);
    task.rows = task.unit_rows;
    task.tokens = task.unit_tokens;
    Maps maps;
    require(grid.n_at_once > 0, "clusters of blocks of threads");
    require(make_maps(task, maps), "maps of matrices");
    const int n_left = queue.overlap ? hopper.n_processors - kUnitTiles * grid.n_at_once : 0;
    task.end = n_left < kFewBlocks ? n_units : units_of_first(n_units, grid.n_at_once, n_left / kFewBlocks);
    grid.run(task, maps);
    if (task.end == n_units) return;
    task.is_second = true;
    task.tokens = std::min(task.unit_tokens, kFewBlocks);
    task.rows = kFewBlocks / task.tokens;
    task.first = task.end * task.n_parts();
    task.end = n_units * task.n_parts();
    Grid<kBf16, kTree> second(kFewBlocks, queue);
    second.n_at_once = std::min(second.n_at_once, n_left / kFewBlocks);
    require(second.n_at_once > 0, "clusters of blocks of threads");
    require(make_maps(task, maps), "maps of matrices");
    second.run(task, maps);
  }
};

template <bool kTree>
void run_tiles(std::span<const FloatRows> runs, int64_t cols, const void* halves, int64_t n_tokens,
               const Hopper& hopper, const Queue& queue) {
  TileTask task;
  task.n_blocks = static_cast<int32_t>(cols / 32);
  task.n_tokens = static_cast<int32_t>(n_tokens);
  const int n_token_tiles = (task.n_tokens + kTokens - 1) / kTokens;
  task.unit_tokens = n_token_tiles > 2 ? 4 : n_token_tiles;
  task.unit_rows = kUnitTiles / task.unit_tokens;
  task.n_token_units = (n_token_tiles + task.unit_tokens - 1) / task.unit_tokens;
  int32_t n_units = 0;
  for (const FloatRows& run : runs) {
    task.run[task.n_runs++] = {run.bias, run.y, run.y_width, static_cast<int32_t>(run.n_rows), n_units};
    const auto n_tiles = static_cast<int32_t>((run.n_rows + kRows - 1) / kRows);
    n_units += (n_tiles + task.unit_rows - 1) / task.unit_rows * task.n_token_units;
  }
  const Products products{hopper, runs, cols, halves};
  runs.front().dtype == tensor::DType::F16 ? products.start<false, kTree>(task, n_units, queue)
                                           : products.start<true, kTree>(task, n_units, queue);
}

}  // namespace assay::backend::cuda::fast_tile
