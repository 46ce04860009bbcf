// Prefill of formats with blocks of 32 on Hopper (sm_90a), in tiles and groups of warps as wgmma_tile.cuh has them. The
// integer of a block is one product on the tensor cores, and one float term an output: while a group adds the terms of
// a block, the tensor cores make the integers of the next. A stage is two blocks of one chunk, or its last one. Two
// planes are joined as integers, 128 q + l, and rounded once, which is quant::join_planes times 128; the rows' scales
// bring the 1/128, exactly.
#include "backend/cuda/tiles/wgmma_formats.cuh"
#include "backend/cuda/tiles/wgmma_tile.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kBlocks = 2;  // of a row in a stage
constexpr int kColumnBytes = 32 * kBlocks, kStageColumnsBytes = kTileColumns * kColumnBytes;
constexpr int kFillingWarps = 3;  // that convert scales, a stage each by turns

template <class Format, int kPlanes>
struct Layout {
  using Tree = ChunkTree<kPlanes>;
  static constexpr int kTokens = kTileColumns / kPlanes;
  static constexpr int kRowFloats = (Format::kHasMin ? 2 : 1) * kTileRows,
                       kTokenFloats = (Format::kHasMin ? 2 : 1) * kTokens;  // of a block
  static constexpr int kWaiting =
      (kPlanes == 2 ? 3 : 2) * Tree::kWaitingFloats * 4;  // sums of one and two chunks; with room, of four
  static constexpr int kRowsAt = kStageColumnsBytes, kScalarsAt = kRowsAt + Format::kStageBytes;
  static constexpr int kStageBytes = kScalarsAt + kBlocks * (kRowFloats + kTokenFloats) * 4;
  static constexpr int kStages = (227 * 1024 - kWaiting - 256) / kStageBytes;
  static constexpr int kBarriers = kWaiting + kStages * kStageBytes;
  static constexpr int kBytes = kBarriers + 16 * kStages;
  static_assert(kStageBytes % 512 == 0 && kStages >= 4 && kBytes <= 227 * 1024);
};

// What is alike for all threads.
template <class Format, int kPlanes>
struct Shared {
  using L = Layout<Format, kPlanes>;
  std::byte* memory;
  uint32_t base;
  __device__ explicit Shared(std::byte* m) : memory(m), base(shared_address(m)) {
    asm volatile("" : "+r"(base));  // found once
  }

  __device__ float4* waiting(int i) const {
    return reinterpret_cast<float4*>(memory) + i * (L::Tree::kWaitingFloats / 4);
  }
  __device__ uint32_t columns(int stage) const {
    return base + static_cast<uint32_t>(L::kWaiting + stage * L::kStageBytes);
  }
  __device__ uint32_t rows(int stage) const { return columns(stage) + L::kRowsAt; }
  // Of a stage: rows' d, then their m, then tokens' d, then their sums, [block][row or token] each.
  __device__ uint32_t scalars(int stage) const { return columns(stage) + L::kScalarsAt; }
  __device__ float* scalars_to_fill(int stage) const {
    return reinterpret_cast<float*>(memory + L::kWaiting + stage * L::kStageBytes + L::kScalarsAt);
  }
  __device__ uint32_t full(int stage) const { return base + static_cast<uint32_t>(L::kBarriers + 16 * stage); }
  __device__ uint32_t free(int stage) const { return full(stage) + 8; }

  __device__ void make_barriers() const {
    for (int i = 0; i < L::kStages; ++i) {
      make_barrier(full(i), 1 + 32);  // the thread that starts the copies, a warp that converts
      make_barrier(free(i), 8);       // the multiplying warps
    }
    barriers_made();
  }
};

template <class Format, int kPlanes, bool kByExpert>
struct Filler {
  using L = Layout<Format, kPlanes>;
  const MmaTasks& tasks;
  const GroupMaps& maps;
  const Shared<Format, kPlanes> s;

  template <class Fill>
  __device__ void for_each_stage(Fill fill) const {
    Ring ring;
    const int n_tiles = tiles_of<kByExpert>(tasks);
    for (int tile = static_cast<int>(blockIdx.x); tile < n_tiles; tile += static_cast<int>(gridDim.x)) {
      const TilePlace at = tile_at<kPlanes, kTileColumns, kByExpert>(tasks, tile);
      for (int chunk = 0; chunk < 8; ++chunk) {
        for (int block = L::Tree::begin_of(chunk, tasks); block < L::Tree::begin_of(chunk + 1, tasks);
             block += kBlocks) {
          fill(at, block, ring);
          ring.next(L::kStages);
        }
      }
    }
  }

  // One thread.
  __device__ void copy_stages() const {
    for_each_stage([&](const TilePlace& at, int block, const Ring& ring) {
      const uint32_t full = s.full(ring.stage);
      wait_phase(s.free(ring.stage), ring.phase ^ 1);
      arrive_with_bytes(full, kStageColumnsBytes + Format::kStageBytes);
      copy_box(s.rows(ring.stage), maps.rows[at.task][0], block * Format::block_bytes(0), at.row_0, full);
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        copy_box(s.columns(ring.stage) + static_cast<uint32_t>(plane * L::kTokens * kColumnBytes), maps.columns[plane],
                 block * 32, at.token_0, full);
      }
    });
  }
  // A warp, every third stage: the loads of the three are under way at once.
  __device__ void convert_scales(int warp, int lane) const {
    const bool by_pairs =
        tasks.n_blocks % (8 * kBlocks) == 0;  // every stage is whole, and its two blocks' scales are aligned
    int turn = 0;
    for_each_stage([&](const TilePlace& at, int block, const Ring& ring) {
      const bool own = turn == warp;
      turn = turn == kFillingWarps - 1 ? 0 : turn + 1;
      if (!own) return;
      Loaded x;
      by_pairs ? load<true>(at, block, lane, x) : load<false>(at, block, lane, x);
      wait_phase(s.free(ring.stage), ring.phase ^ 1);
      store(x, lane, s.scalars_to_fill(ring.stage));
      arrive(s.full(ring.stage));
    });
  }
  static constexpr int kRows = kTileRows / 32, kTokens = L::kTokens / 32;  // of a lane
  // Of the stage's blocks, as they lie.
  struct Loaded {
    uint32_t w[kRows][kBlocks];
    float d[kTokens][kBlocks];
    uint32_t q_sums[kTokens], l_sums[kTokens];  // two numbers of 16 bits
  };
  template <bool kByPairs>
  __device__ void load(const TilePlace& at, int block, int lane, Loaded& x) const {
    const MmaTask& task = tasks.task[at.task];
    const int next = kByPairs ? 1 : min(block + 1, tasks.n_blocks - 1) - block;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int64_t from = int64_t{min(at.row_0 + 32 * i + lane, task.n_rows - 1)} * tasks.n_blocks + block;
      if constexpr (!kByPairs) {
        x.w[i][0] = Format::load_scales(task.w, from), x.w[i][1] = Format::load_scales(task.w, from + next);
      } else if constexpr (Format::kHasMin) {
        const uint2 both = reinterpret_cast<const uint2*>(task.w.base[0])[from / 2];
        x.w[i][0] = both.x, x.w[i][1] = both.y;
      } else {
        const uint32_t both = reinterpret_cast<const uint32_t*>(task.w.base[0])[from / 2];
        x.w[i][0] = both & 0xFFFFu, x.w[i][1] = both >> 16;
      }
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int64_t from = int64_t{min(at.token_0 + 32 * i + lane, tasks.n_tokens - 1)} * tasks.n_blocks + block;
      if constexpr (kByPairs) {
        const float2 both = reinterpret_cast<const float2*>(tasks.x.d)[from / 2];
        x.d[i][0] = both.x, x.d[i][1] = both.y;
      } else {
        x.d[i][0] = tasks.x.d[from], x.d[i][1] = tasks.x.d[from + next];
      }
      if constexpr (Format::kHasMin) {
        x.q_sums[i] = two_sums<kByPairs>(tasks.x.q_sums, from, next);
        if constexpr (kPlanes == 2) x.l_sums[i] = two_sums<kByPairs>(tasks.x.l_sums, from, next);
      }
    }
  }
  template <bool kByPairs>
  __device__ static uint32_t two_sums(const int16_t* sums, int64_t from, int next) {
    if constexpr (kByPairs) return reinterpret_cast<const uint32_t*>(sums)[from / 2];
    return static_cast<uint16_t>(sums[from]) | static_cast<uint32_t>(static_cast<uint16_t>(sums[from + next])) << 16;
  }
  __device__ static float sum_of(uint32_t two, int block) {
    return static_cast<float>(static_cast<int16_t>(block == 0 ? two & 0xFFFFu : two >> 16));
  }
  __device__ void store(const Loaded& x, int lane, float* to) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float* rows = to + block * kTileRows + lane;
      float* tokens = to + kBlocks * L::kRowFloats + block * L::kTokens + lane;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const quant::BlockScales d = Format::block_scales(x.w[i][block]);
        rows[32 * i] = kPlanes == 2 ? d.d * 0x1p-7f : d.d;
        if constexpr (Format::kHasMin) rows[kBlocks * kTileRows + 32 * i] = d.m;
      }
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        tokens[32 * i] = x.d[i][block];
        if constexpr (Format::kHasMin) {
          float sum = sum_of(x.q_sums[i], block);
          if constexpr (kPlanes == 2) sum = num::fma(0x1p-7f, sum_of(x.l_sums[i], block), sum);  // quant::join_planes
          tokens[kBlocks * L::kTokens + 32 * i] = sum;
        }
      }
    }
  }
  __device__ void run(int t) const {
    if (t == 0) copy_stages();
    if (t >= 32) convert_scales(t / 32 - 1, t % 32);
  }
};

template <class Format, int kPlanes, bool kByExpert>
struct Multiplier {
  using L = Layout<Format, kPlanes>;
  using Tree = typename L::Tree;
  static constexpr int kN = Tree::kN;
  const MmaTasks& tasks;
  const Shared<Format, kPlanes> s;
  const int t;  // of the two groups' threads
  Tree tree;
  uint32_t a[kBlocks][4];
  int32_t sum[kBlocks][64];

  __device__ Multiplier(const MmaTasks& all, const Shared<Format, kPlanes>& shared, int thread, float4* scratch)
      : tasks(all), s(shared), t(thread),
        tree(all, thread, s.waiting(0), s.waiting(1), kPlanes == 2 ? s.waiting(2) : scratch) {}

  // What two planes are multiplied by before they are joined; opaque, so that it becomes a multiply-add, whose pipe has
  // more room than shifts'.
  __device__ static int32_t high_factor() {
    int32_t x = 128;
    asm("" : "+r"(x));
    return x;
  }

  template <int kBlock>
  __device__ void multiply(int stage) {
#pragma unroll
    for (int i = 0; i < 64; ++i) sum[kBlock][i] = 0;  // so that nothing of the block before is kept in registers
    begin_products();
    multiply_bytes_signed<false>(sum[kBlock], a[kBlock], narrow_columns(s.columns(stage)) + uint64_t{kBlock * 2});
    end_products();
  }
  template <int kBlock>
  __device__ void add_terms(int stage, int32_t factor) {
    const uint32_t rows = s.scalars(stage) + static_cast<uint32_t>(4 * (kBlock * kTileRows + t / 32 * 16 + t % 32 / 4));
    const uint32_t tokens =
        s.scalars(stage) + static_cast<uint32_t>(4 * (kBlocks * L::kRowFloats + kBlock * L::kTokens + 2 * (t % 4)));
    quant::BlockScales w[2] = {{float_at(rows), 0.0f}, {float_at(rows + 32), 0.0f}};
    if constexpr (Format::kHasMin)
      w[0].m = float_at(rows + 4 * kBlocks * kTileRows), w[1].m = float_at(rows + 4 * kBlocks * kTileRows + 32);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float2 x_d = floats_at(tokens + 32 * n);
      float2 x_sum = {0.0f, 0.0f};
      if constexpr (Format::kHasMin) x_sum = floats_at(tokens + 4 * kBlocks * L::kTokens + 32 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int32_t joined = sum[kBlock][4 * n + e];
        if constexpr (kPlanes == 2) joined = joined * factor + sum[kBlock][32 + 4 * n + e];
        const float term =
            quant::block_term(Format::kHasMin, w[e / 2], static_cast<float>(joined), e % 2 == 0 ? x_sum.x : x_sum.y);
        tree.chain[4 * n + e] = num::fma(e % 2 == 0 ? x_d.x : x_d.y, term, tree.chain[4 * n + e]);
      }
    }
  }

  __device__ void run() {
    const int32_t factor = high_factor();
    Ring ring;
    const int n_tiles = tiles_of<kByExpert>(tasks);
    for (int tile = static_cast<int>(blockIdx.x); tile < n_tiles; tile += static_cast<int>(gridDim.x)) {
      const TilePlace at = tile_at<kPlanes, kTileColumns, kByExpert>(tasks, tile);
      tree.clear();
#pragma unroll 1
      for (int chunk = 0; chunk < 8; ++chunk) {
        const int end = tree.chunk_begin(chunk + 1);
#pragma unroll 1
        for (int block = tree.chunk_begin(chunk); block < end; block += kBlocks) {
          wait_phase(s.full(ring.stage), ring.phase);
#pragma unroll
          for (int i = 0; i < kBlocks; ++i)
            Format::fragment(s.rows(ring.stage), static_cast<uint32_t>(t / 32 * 16), static_cast<uint32_t>(i), a[i]);
          multiply<0>(ring.stage);
          multiply<1>(ring.stage);
          wait_products<1>();
          add_terms<0>(ring.stage, factor);
          wait_products<0>();
          if (block + 1 < end) add_terms<1>(ring.stage, factor);
          __syncwarp();
          if (t % 32 == 0) arrive(s.free(ring.stage));
          ring.next(L::kStages);
        }
        tree.end_chunk(chunk, [&] {
          if constexpr (kByExpert) {
            tree.write_pairs(tile);
          } else {
            tree.write(at);
          }
        });
      }
    }
  }
};

template <class Format, int kPlanes, bool kByExpert>
__global__ void __launch_bounds__(kGroupsThreads, 1)
    wgmma_32_kernel(const __grid_constant__ MmaTasks tasks, const __grid_constant__ GroupMaps maps, float4* scratch) {
  extern __shared__ __align__(1024) std::byte memory[];
  const Shared<Format, kPlanes> shared(memory);
  if (threadIdx.x == 0) shared.make_barriers();
  __syncthreads();
  let_next_start();
  wait_for_previous();
  const int t = static_cast<int>(threadIdx.x);
  constexpr int kFewRegisters = 56;
  if (t < kGroupThreads) {
    give_registers<kFewRegisters>();
    Filler<Format, kPlanes, kByExpert>{tasks, maps, shared}.run(t);
  } else {
    take_registers<256 - kFewRegisters / 2 - 4>();
    Multiplier<Format, kPlanes, kByExpert>(tasks, shared, t - kGroupThreads,
                                           scratch + size_t{blockIdx.x} * (kHopperScratchBytes / sizeof(float4)))
        .run();
  }
}

template <class Format, int kPlanes, bool kByExpert>
void launch_kernel(MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  GroupMaps maps;
  require(make_group_maps<Format>(tasks, hopper, kColumnBytes, kTileColumns / kPlanes, maps), "maps of matrices");
  launch_groups<kByExpert>(wgmma_32_kernel<Format, kPlanes, kByExpert>, tasks, maps, Layout<Format, kPlanes>::kBytes,
                           hopper, queue);
}
template <class Format, bool kByExpert>
void launch_format(MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  tasks.x.planes == 2 ? launch_kernel<Format, 2, kByExpert>(tasks, hopper, queue)
                      : launch_kernel<Format, 1, kByExpert>(tasks, hopper, queue);
}
template <bool kByExpert>
void launch_dtype(tensor::DType dtype, MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  if (dtype == tensor::DType::Q4_0) launch_format<WgmmaQ4_0, kByExpert>(tasks, hopper, queue);
  if (dtype == tensor::DType::Q4_1) launch_format<WgmmaQ4_1, kByExpert>(tasks, hopper, queue);
  if (dtype == tensor::DType::Q8_0) launch_format<WgmmaQ8_0, kByExpert>(tasks, hopper, queue);
}

}  // namespace

void linear_wgmma_32(tensor::DType dtype, MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  launch_dtype<false>(dtype, tasks, hopper, queue);
}
void expert_wgmma_32(tensor::DType dtype, MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  launch_dtype<true>(dtype, tasks, hopper, queue);
}

}  // namespace assay::backend::cuda
