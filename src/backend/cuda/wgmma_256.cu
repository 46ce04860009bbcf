// Prefill of the superblock formats on Hopper (sm_90a), in tiles and groups of warps as wgmma_tile.cuh has them. A group multiplies the high
// digits of a superblock's weights, shifts by some bits, multiplies the low digits, so that one integer an output and superblock comes out of the
// tensor cores. Minima times sums of activations are a product of half-precision integers (at most 63 and 2,032, so exact). Floats follow the
// contract, one chain an output in a register.
#include "backend/cuda/wgmma_formats.cuh"
#include "backend/cuda/wgmma_tile.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kColumnStages = 3, kRowStages = 2, kScalarStages = 3;  // superblocks under way
constexpr int kPanelBytes = kTileColumns * 128, kStageColumnsBytes = 2 * kPanelBytes;  // 128 weights of every column side by side
constexpr int kScalarThreads = 64;

template <class Format, int kPlanes>
struct Layout {
  static constexpr int kSumsBytes = Format::kHasMin ? kTileColumns * 32 : 0;
  static constexpr int kRows = kColumnStages * kStageColumnsBytes;  // after the columns
  static constexpr int kWaiting = kRows + kRowStages * Format::kStageBytes;
  static constexpr int kScalars = kWaiting + kTileRows * kTileColumns * 4;
  static constexpr int kScalarBytes = kSumsBytes + (kTileColumns + (Format::kHasMin ? 0 : kTileRows)) * 4;
  static constexpr int kBarriers = kScalars + kScalarStages * kScalarBytes;
  static constexpr int kBytes = kBarriers + 2 * (kColumnStages + kRowStages + kScalarStages) * 8;
  static_assert(Format::kStageBytes % 1024 == 0 && kBytes <= 227 * 1024);
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

  __device__ uint32_t columns(int stage) const { return base + static_cast<uint32_t>(stage * kStageColumnsBytes); }
  __device__ uint32_t rows(int stage) const { return base + static_cast<uint32_t>(L::kRows + stage * Format::kStageBytes); }
  __device__ std::byte* sums(int stage) const { return memory + L::kScalars + stage * L::kScalarBytes; }
  __device__ float* token_d(int stage) const { return reinterpret_cast<float*>(sums(stage) + L::kSumsBytes); }
  __device__ float* row_d(int stage) const { return token_d(stage) + kTileColumns; }
  __device__ float4* waiting() const { return reinterpret_cast<float4*>(memory + L::kWaiting); }
  // Barriers in pairs: a stage is full, a stage is free.
  __device__ uint32_t barrier(int i) const { return base + static_cast<uint32_t>(L::kBarriers + 16 * i); }
  __device__ uint32_t columns_full(int stage) const { return barrier(stage); }
  __device__ uint32_t rows_full(int stage) const { return barrier(kColumnStages + stage); }
  __device__ uint32_t scalars_full(int stage) const { return barrier(kColumnStages + kRowStages + stage); }
  __device__ static uint32_t free_of(uint32_t full) { return full + 8; }

  __device__ void make_barriers() const {
    for (int i = 0; i < kColumnStages + kRowStages + kScalarStages; ++i) {
      make_barrier(barrier(i), i < kColumnStages + kRowStages ? 1 : kScalarThreads);
      make_barrier(free_of(barrier(i)), 8);  // the multiplying warps
    }
    barriers_made();
  }
};

// The warps that fill the stages: one thread starts the copies of the columns, one those of the rows; two warps bring what must be converted.
template <class Format, int kPlanes>
struct Filler {
  using L = Layout<Format, kPlanes>;
  static constexpr int kTokens = kTileColumns / kPlanes;
  const MmaTasks& tasks;
  const GroupMaps& maps;
  const Shared<Format, kPlanes> s;

  template <class Fill>
  __device__ void for_each_superblock(uint32_t first_barrier, int n_stages, Fill fill) const {
    Ring ring;
    for (int tile = static_cast<int>(blockIdx.x); tile < tasks.n_tiles; tile += static_cast<int>(gridDim.x)) {
      const TilePlace at = tile_at<kPlanes>(tasks, tile);
      for (int block = 0; block < tasks.n_blocks; ++block) {
        const uint32_t full = first_barrier + static_cast<uint32_t>(16 * ring.stage);
        wait_phase(s.free_of(full), ring.phase ^ 1);
        fill(at, block, ring.stage, full);
        ring.next(n_stages);
      }
    }
  }
  __device__ void fill_columns() const {
    for_each_superblock(s.columns_full(0), kColumnStages, [&](const TilePlace& at, int block, int stage, uint32_t full) {
      arrive_with_bytes(full, kStageColumnsBytes);
#pragma unroll
      for (int i = 0; i < 2 * kPlanes; ++i) {
        const int panel = i / kPlanes, plane = i % kPlanes;
        copy_box(s.columns(stage) + static_cast<uint32_t>(panel * kPanelBytes + plane * kTokens * 128), maps.columns[plane], block * 256 + 128 * panel,
                 at.token_0, full);
      }
    });
  }
  __device__ void fill_rows() const {
    for_each_superblock(s.rows_full(0), kRowStages, [&](const TilePlace& at, int block, int stage, uint32_t full) {
      arrive_with_bytes(full, Format::kStageBytes);
#pragma unroll
      for (int i = 0; i < Format::kParts; ++i) {
        copy_box(s.rows(stage) + static_cast<uint32_t>(Format::part(i).at), maps.rows[at.task][i], block * Format::part(i).bytes, at.row_0, full);
      }
    });
  }
  __device__ static uint32_t halves_of(uint32_t pair) {
    const __half2 h = __halves2half2(__short2half_rn(static_cast<int16_t>(pair & 0xFFFFu)), __short2half_rn(static_cast<int16_t>(pair >> 16)));
    return *reinterpret_cast<const uint32_t*>(&h);
  }
  __device__ void fill_scalars(int t) const {
    for_each_superblock(s.scalars_full(0), kScalarStages, [&](const TilePlace& at, int block, int stage, uint32_t full) {
#pragma unroll
      for (int column = t; column < kTileColumns; column += kScalarThreads) {
        const int64_t token = min(at.token_0 + column % kTokens, tasks.n_tokens - 1), i = token * tasks.n_blocks + block;
        if (column < kTokens) s.token_d(stage)[column] = tasks.x.d[i];
        if constexpr (Format::kHasMin) {
          const auto* from = reinterpret_cast<const uint4*>((column < kTokens ? tasks.x.q_sums : tasks.x.l_sums) + i * 16);
          auto* sums = reinterpret_cast<uint4*>(s.sums(stage)) + column;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint4 v = from[half];
            sums[half * kTileColumns] = {halves_of(v.x), halves_of(v.y), halves_of(v.z), halves_of(v.w)};
          }
        } else {
          const MmaTask& task = tasks.task[at.task];
          const int64_t row = min(at.row_0 + column, task.n_rows - 1);
          s.row_d(stage)[column] = low_half(reinterpret_cast<const uint16_t*>(task.w.base[3])[row * tasks.n_blocks + block]);
        }
      }
      show_to_tensor_cores();
      arrive(full);
    });
  }
  __device__ void run(int t) const {
    if (t == 0) fill_columns();
    if (t == 32) fill_rows();
    if (t >= kGroupThreads - kScalarThreads) fill_scalars(t - (kGroupThreads - kScalarThreads));
  }
};

// kSingle: every chunk is one superblock (rows of 2,048).
template <class Format, int kPlanes, bool kSingle>
struct Multiplier {
  using L = Layout<Format, kPlanes>;
  using Tree = ChunkTree<kPlanes, kSingle>;
  static constexpr int kN = Tree::kN;
  const MmaTasks& tasks;
  const Shared<Format, kPlanes> s;
  const int t;  // of the two groups' threads
  Tree tree;
  int32_t sum[64];
  float of_minima[2][32];  // minima times sums of the first 64 columns, of the others

  __device__ Multiplier(const MmaTasks& all, const Shared<Format, kPlanes>& shared, int thread, float4* scratch)
      : tasks(all), s(shared), t(thread),
        tree{all, thread, s.waiting(),
             kPlanes == 2 ? s.waiting() + Tree::kWaitingFloats / 4 : kSingle ? s.waiting() : scratch + Tree::kWaitingFloats / 4, scratch} {}

  template <bool kAccumulate>
  __device__ static void multiply_high(int32_t (&out)[64], const uint32_t (&a)[4], uint64_t b) {
    if constexpr (Format::kSigned) {
      multiply_bytes_signed<kAccumulate>(out, a, b);
    } else {
      multiply_bytes_unsigned<kAccumulate>(out, a, b);
    }
  }
  __device__ static uint64_t columns_of(uint64_t stage, int weight) {
    return stage + static_cast<uint64_t>((weight / 128 * kPanelBytes + weight % 128) >> 4);
  }

  __device__ void multiply_minima(const Format& w, const Ring& scalars, int half) {
    const uint32_t sums = shared_address(s.sums(scalars.stage)) + static_cast<uint32_t>(half * 64 * 16);
    multiply_halves_64(of_minima[half], w.minima, plain_columns(sums, kTileColumns * 16));
  }

  // The integers of a superblock, the scales of its rows, and the first of the minima's products (one plane leaves no registers for both).
  __device__ void multiply(const Ring& rows, const Ring& columns, const Ring& scalars, Format& w) {
    const uint32_t stage = s.rows(rows.stage), row = static_cast<uint32_t>(t / 32 * 16);
    const uint64_t from = swizzled_columns(s.columns(columns.stage));
    Fragments a[8];
#pragma unroll
    for (int i = 0; i < 64; ++i) sum[i] = 0;  // so that nothing of the superblock before is kept
    wait_phase(s.rows_full(rows.stage), rows.phase);
    w.read(stage, row);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w.unpack(stage, row, i, a[2 * i], a[2 * i + 1]);
      if (i == 0) wait_phase(s.columns_full(columns.stage), columns.phase);
      begin_products();
      if (i == 0) {
        multiply_high<false>(sum, a[0].high, columns_of(from, Format::first(0)));
      } else {
        multiply_high<true>(sum, a[2 * i].high, columns_of(from, Format::first(i)));
      }
      multiply_high<true>(sum, a[2 * i + 1].high, columns_of(from, Format::second(i)));
      end_products();
    }
    __syncwarp();
    if (t % 32 == 0) arrive(s.free_of(s.rows_full(rows.stage)));
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < 64; ++i) sum[i] = static_cast<int32_t>(static_cast<uint32_t>(sum[i]) << Format::kShift);
    wait_phase(s.scalars_full(scalars.stage), scalars.phase);
    if constexpr (Format::kHasMin) {
#pragma unroll
      for (int half = 0; half < kPlanes; ++half) clear_minima(half);
    }
    begin_products();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply_bytes_unsigned<true>(sum, a[2 * i].low, columns_of(from, Format::first(i)));
      multiply_bytes_unsigned<true>(sum, a[2 * i + 1].low, columns_of(from, Format::second(i)));
    }
    if constexpr (Format::kHasMin) {
#pragma unroll
      for (int half = 0; half < kPlanes; ++half) multiply_minima(w, scalars, half);
    }
    end_products();
    wait_products<0>();
  }

  // So that nothing of the superblock before is kept in registers.
  __device__ void clear_minima(int half) {
#pragma unroll
    for (int i = 0; i < 32; ++i) of_minima[half][i] = 0.0f;
  }

  // The float terms, into the chains.
  __device__ void add_terms(Format& w, const Ring& scalars) {
    if constexpr (Format::kHasMin && kPlanes == 1) {
      clear_minima(1);
      begin_products();
      multiply_minima(w, scalars, 1);
      end_products();
    }
    if constexpr (!Format::kHasMin) {
      const float* d = s.row_d(scalars.stage) + t / 32 * 16 + t % 32 / 4;
      w.d[0] = {d[0], 0.0f}, w.d[1] = {d[8], 0.0f};
    }
    const float* token_d = s.token_d(scalars.stage);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      if constexpr (Format::kHasMin && kPlanes == 1) {
        if (n == 8) wait_products<0>();
      }
      const float2 x_d = *reinterpret_cast<const float2*>(token_d + 8 * n + 2 * (t % 4));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 4 * n + e;
        float f = static_cast<float>(sum[i]), m = Format::kHasMin ? of_minima[i / 32][i % 32] : 0.0f;
        if constexpr (kPlanes == 2) {
          f = num::fma(0x1p-7f, static_cast<float>(sum[32 + i]), f);  // quant::join_planes
          if constexpr (Format::kHasMin) m = num::fma(0x1p-7f, of_minima[1][i], m);
        }
        const float term = quant::block_term(Format::kHasMin, w.d[e / 2], f, m), d = e % 2 == 0 ? x_d.x : x_d.y;
        float& chain = tree.chain[i];
        if constexpr (kSingle) {
          chain = chain + num::fma(d, term, 0.0f);  // a chain of one term, and its neighbour's if there is one
        } else {
          chain = num::fma(d, term, chain);
        }
      }
    }
  }

  __device__ void run() {
    Ring rows, columns, scalars;
    for (int tile = static_cast<int>(blockIdx.x); tile < tasks.n_tiles; tile += static_cast<int>(gridDim.x)) {
      const TilePlace at = tile_at<kPlanes>(tasks, tile);
      tree.clear();
      int chunk = 0;
      for (int block = 0; block < tasks.n_blocks; ++block) {
        for (; tree.chunk_begin(chunk + 1) <= block; ++chunk) tree.end_chunk(chunk, at);
        Format w;
        multiply(rows, columns, scalars, w);
        if (t % 32 == 0) arrive(s.free_of(s.columns_full(columns.stage)));
        add_terms(w, scalars);
        __syncwarp();
        if (t % 32 == 0) arrive(s.free_of(s.scalars_full(scalars.stage)));
        rows.next(kRowStages);
        columns.next(kColumnStages);
        scalars.next(kScalarStages);
      }
      for (; chunk < 8; ++chunk) tree.end_chunk(chunk, at);
    }
  }
};

template <class Format, int kPlanes, bool kSingle>
__global__ void __launch_bounds__(kGroupsThreads, 1)
    wgmma_256_kernel(const __grid_constant__ MmaTasks tasks, const __grid_constant__ GroupMaps maps, float4* scratch) {
  extern __shared__ __align__(1024) std::byte memory[];
  const Shared<Format, kPlanes> shared(memory);
  if (threadIdx.x == 0) shared.make_barriers();
  __syncthreads();
  let_next_start();
  wait_for_previous();
  const int t = static_cast<int>(threadIdx.x);
  constexpr int kFewRegisters = kPlanes == 1 && Format::kHasMin ? 24 : 40;  // where the others need every one
  if (t < kGroupThreads) {
    give_registers<kFewRegisters>();
    Filler<Format, kPlanes>{tasks, maps, shared}.run(t);
  } else {
    take_registers<256 - kFewRegisters / 2 - 4>();
    Multiplier<Format, kPlanes, kSingle>(tasks, shared, t - kGroupThreads, scratch + size_t{blockIdx.x} * (kHopperScratchBytes / sizeof(float4))).run();
  }
}

template <class Format, int kPlanes, bool kSingle>
bool launch_kernel(MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  GroupMaps maps;
  return make_group_maps<Format>(tasks, hopper, 128, kTileColumns / kPlanes, maps) &&
         launch_groups(wgmma_256_kernel<Format, kPlanes, kSingle>, tasks, maps, Layout<Format, kPlanes>::kBytes, hopper, queue);
}
template <class Format>
bool launch_format(MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  if (tasks.x.planes == 2) return tasks.n_blocks == 8 ? launch_kernel<Format, 2, true>(tasks, hopper, queue) : launch_kernel<Format, 2, false>(tasks, hopper, queue);
  return tasks.n_blocks == 8 ? launch_kernel<Format, 1, true>(tasks, hopper, queue) : launch_kernel<Format, 1, false>(tasks, hopper, queue);
}

}  // namespace

bool linear_wgmma_256(tensor::DType dtype, MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  if (dtype == tensor::DType::Q4_K) return launch_format<WgmmaQ4_K>(tasks, hopper, queue);
  if (dtype == tensor::DType::Q5_K) return launch_format<WgmmaQ5_K>(tasks, hopper, queue);
  if (dtype == tensor::DType::Q6_K) return launch_format<WgmmaQ6_K>(tasks, hopper, queue);
  return false;
}

}  // namespace assay::backend::cuda
