// Prefill and many sequences, superblock formats, on Hopper (sm_90a), in tiles and groups of warps as wgmma_tile.cuh has them, of 64 or
// 128 columns. A group multiplies the high digits of a superblock's weights, shifts by some bits, multiplies the low digits, so that one
// integer an output and superblock comes out of the tensor cores. Minima times sums of activations are a product of half-precision integers
// (at most 63 and 2,032, so exact). Floats follow the contract, one chain an output in a register. Tiles that are left over after whole
// rounds are split by chunks over the multiprocessors.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/wgmma_formats.cuh"
#include "backend/cuda/wgmma_tile.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kColumnStages = 3, kRowStages = 2, kScalarStages = 3;  // superblocks under way
constexpr int kScalarThreads = 64;

// The formats of a kernel's matrices: one, or two that go together (as the files that mix them have them in one product).
template <class A, class B = A>
struct Formats {
  using First = A;
  using Second = B;
  static constexpr bool kMixed = !std::is_same_v<A, B>, kHasMin = A::kHasMin || B::kHasMin;
  static constexpr int kStageBytes = std::max(A::kStageBytes, B::kStageBytes);
};

template <class F, int kPlanes, int kColumns>
struct Layout {
  static constexpr int kPanelBytes = kColumns * 128, kStageColumnsBytes = 2 * kPanelBytes;  // 128 weights of every column side by side
  static constexpr int kSumsBytes = F::kHasMin ? kColumns * 32 : kTileRows * 4;  // sums of activations, or scales of rows
  static constexpr int kWaitingFloats = kTileRows * kColumns / kPlanes;
  static constexpr int kRows = kColumnStages * kStageColumnsBytes;  // after the columns
  static constexpr int kWaiting = kRows + kRowStages * F::kStageBytes;
  static constexpr int kScalars = kWaiting + kTileRows * kColumns * 4;
  static constexpr int kScalarBytes = kSumsBytes + kColumns * 4;
  static constexpr int kBarriers = kScalars + kScalarStages * kScalarBytes;
  static constexpr int kBytes = kBarriers + 2 * (kColumnStages + kRowStages + kScalarStages) * 8;
  static_assert(F::kStageBytes % 1024 == 0 && kBytes <= 227 * 1024);
};

// What is alike for all threads.
template <class F, int kPlanes, int kColumns>
struct Shared {
  using L = Layout<F, kPlanes, kColumns>;
  std::byte* memory;
  uint32_t base;
  __device__ explicit Shared(std::byte* m) : memory(m), base(shared_address(m)) {
    asm volatile("" : "+r"(base));  // found once
  }

  __device__ uint32_t columns(int stage) const { return base + static_cast<uint32_t>(stage * L::kStageColumnsBytes); }
  __device__ uint32_t rows(int stage) const { return base + static_cast<uint32_t>(L::kRows + stage * F::kStageBytes); }
  __device__ std::byte* sums(int stage) const { return memory + L::kScalars + stage * L::kScalarBytes; }
  __device__ float* token_d(int stage) const { return reinterpret_cast<float*>(sums(stage) + L::kSumsBytes); }
  __device__ float* row_d(int stage) const { return reinterpret_cast<float*>(sums(stage)); }
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

// The walk over tiles: block b of threads takes items b, b + grid, ... The first n_split tiles are split into kParts parts of 8 / n_parts
// chunks, an item each; the others are whole.
struct Walk {
  int32_t n_split = 0, n_parts = 1, n_items = 0;
  uint32_t second = 0;          // bit i: task i is of the second format
  float4* nodes = nullptr;      // of every part of the split tiles: its sums
  uint32_t* arrived = nullptr;  // of every split tile: parts whose sums are there, then those whose blocks know it; 0 between kernels
};
struct Item {
  int tile, first_chunk, n_chunks;
  __device__ Item(const Walk& walk, int i) {
    const int n_units = walk.n_split * walk.n_parts;
    const bool part = i < n_units;
    n_chunks = part ? 8 / walk.n_parts : 8;
    tile = part ? i / walk.n_parts : walk.n_split + i - n_units;
    first_chunk = part ? i % walk.n_parts * n_chunks : 0;
  }
};

__device__ void meet_multipliers() { asm volatile("bar.sync 1, %0;" ::"n"(2 * kGroupThreads) : "memory"); }

// The warps that fill the stages: one thread starts the copies of the columns, one those of the rows; two warps bring what must be
// converted.
template <class F, int kPlanes, int kColumns>
struct Filler {
  using L = Layout<F, kPlanes, kColumns>;
  static constexpr int kTokens = kColumns / kPlanes;
  const MmaTasks& tasks;
  const Walk& walk;
  const GroupMaps& maps;
  const Shared<F, kPlanes, kColumns> s;

  template <class Fill>
  __device__ void for_each_superblock(uint32_t first_barrier, int n_stages, Fill fill) const {
    Ring ring;
    for (int i = static_cast<int>(blockIdx.x); i < walk.n_items; i += static_cast<int>(gridDim.x)) {
      const Item item(walk, i);
      const TilePlace at = tile_at<kPlanes, kColumns>(tasks, item.tile);
      const int end = (item.first_chunk + item.n_chunks) * tasks.n_blocks / 8;
      for (int block = item.first_chunk * tasks.n_blocks / 8; block < end; ++block) {
        const uint32_t full = first_barrier + static_cast<uint32_t>(16 * ring.stage);
        wait_phase(s.free_of(full), ring.phase ^ 1);
        fill(at, block, ring.stage, full);
        ring.next(n_stages);
      }
    }
  }
  __device__ void fill_columns() const {
    for_each_superblock(s.columns_full(0), kColumnStages, [&](const TilePlace& at, int block, int stage, uint32_t full) {
      arrive_with_bytes(full, L::kStageColumnsBytes);
#pragma unroll
      for (int i = 0; i < 2 * kPlanes; ++i) {
        const int panel = i / kPlanes, plane = i % kPlanes;
        copy_box(s.columns(stage) + static_cast<uint32_t>(panel * L::kPanelBytes + plane * kTokens * 128), maps.columns[plane],
                 block * 256 + 128 * panel, at.token_0, full);
      }
    });
  }
  __device__ void fill_rows() const {
    for_each_superblock(s.rows_full(0), kRowStages, [&](const TilePlace& at, int block, int stage, uint32_t full) {
      is_second(at) ? fill_rows_of<typename F::Second>(at, block, stage, full) : fill_rows_of<typename F::First>(at, block, stage, full);
    });
  }
  __device__ bool is_second(const TilePlace& at) const { return F::kMixed && (walk.second >> at.task & 1) != 0; }
  template <class Format>
  __device__ void fill_rows_of(const TilePlace& at, int block, int stage, uint32_t full) const {
    arrive_with_bytes(full, Format::kStageBytes);
#pragma unroll
    for (int i = 0; i < Format::kParts; ++i) {
      copy_box(s.rows(stage) + static_cast<uint32_t>(Format::part(i).at), maps.rows[at.task][i], block * Format::part(i).bytes, at.row_0,
               full);
    }
  }
  // Sums of the activations for the formats with minima, for the others scales of the rows.
  __device__ void fill_scalars(int t) const {
    for_each_superblock(s.scalars_full(0), kScalarStages, [&](const TilePlace& at, int block, int stage, uint32_t full) {
      const bool has_min = is_second(at) ? F::Second::kHasMin : F::First::kHasMin;
#pragma unroll
      for (int column = t; column < kColumns; column += kScalarThreads) {
        const int64_t token = min(at.token_0 + column % kTokens, tasks.n_tokens - 1), i = token * tasks.n_blocks + block;
        if (column < kTokens) s.token_d(stage)[column] = tasks.x.d[i];
        if (!has_min) continue;
        const auto* from = reinterpret_cast<const uint4*>((column < kTokens ? tasks.x.q_sums : tasks.x.l_sums) + i * 16);
        auto* sums = reinterpret_cast<uint4*>(s.sums(stage)) + column;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 v = from[half];
          sums[half * kColumns] = {halves_of(v.x), halves_of(v.y), halves_of(v.z), halves_of(v.w)};
        }
      }
      if (!has_min) {
        const MmaTask& task = tasks.task[at.task];
#pragma unroll
        for (int i = t; i < kTileRows; i += kScalarThreads) {
          const int64_t row = min(at.row_0 + i, task.n_rows - 1);
          s.row_d(stage)[i] = low_half(reinterpret_cast<const uint16_t*>(task.w.base[3])[row * tasks.n_blocks + block]);
        }
      }
      show_to_tensor_cores();
      arrive(full);
    });
  }
  __device__ void run(int t) const {
    if (t == 32) return fill_rows();  // weights are there before the kernel ahead has ended
    wait_for_previous();
    if (t == 0) fill_columns();
    if (t >= kGroupThreads - kScalarThreads) fill_scalars(t - (kGroupThreads - kScalarThreads));
  }
};

// kSingle: every chunk is one superblock (rows of 2,048).
template <class F, int kPlanes, int kColumns, bool kSingle>
struct Multiplier : TileChains<kColumns / 8 / kPlanes> {
  using L = Layout<F, kPlanes, kColumns>;
  static constexpr int kN = kColumns / 8 / kPlanes;  // column tiles of outputs
  using Chains = TileChains<kN>;
  using Chains::tasks, Chains::t, Chains::chain, Chains::clear, Chains::put, Chains::add, Chains::write;
  static constexpr int kHalves = kColumns / 64, kHalvesAtOnce = kPlanes == 1 ? 1 : kHalves;
  const Walk& walk;
  const Shared<F, kPlanes, kColumns> s;
  float4 *const one, *const two, *const four;  // sums of so many chunks that wait for their neighbours
  int32_t sum[kColumns / 2];
  float of_minima[kHalves][32];  // minima times sums, of 64 columns each

  __device__ Multiplier(const MmaTasks& all, const Walk& items, const Shared<F, kPlanes, kColumns>& shared, int thread, float4* scratch)
      : Chains(all, thread), walk(items), s(shared), one(shared.waiting()),
        two(kPlanes == 2 ? one + L::kWaitingFloats / 4 : kSingle ? one : scratch + L::kWaitingFloats / 4), four(scratch) {}

  __device__ int chunk_begin(int i) const { return i * tasks.n_blocks / 8; }

  // Chunk `chunk` of the item's n has ended. The last leaves the item's sum in the chains.
  __device__ void end_chunk(int chunk, int n) {
    if (chunk % 2 == 0) {
      if (kSingle && n > 1) return;  // the next superblock's term is added to it
      if (n == 1) return;
      put(one);
    } else {
      if constexpr (!kSingle) add(one);
      if (chunk % 4 == 1) {
        if (n == 2) return;
        put(two);
      } else {
        add(two);
        if (chunk == 7) add(four);
        if (chunk + 1 == n) return;
        put(four);
      }
    }
    clear();
  }
  // The sums of a part of a tile, for all the parts' blocks of threads.
  static constexpr int kVectors = L::kWaitingFloats / 4;
  __device__ float4* nodes_of(const Item& item) const { return walk.nodes + static_cast<int64_t>(item.tile) * walk.n_parts * kVectors; }
  __device__ void hand_over(const Item& item) const {
    put(nodes_of(item) + item.first_chunk / item.n_chunks * kVectors);
    meet_multipliers();
    if (t != 0) return;
    __threadfence();
    atomicAdd(walk.arrived + item.tile, 1u);
  }
  // When all parts' sums are there: the block's share of the tile's outputs. All blocks of the grid run at once, so none waits for one that
  // does not run.
  __device__ void join_parts(const Item& item) const {
    if (t == 0) {
      const auto n = static_cast<uint32_t>(walk.n_parts);
      uint32_t* const arrived = walk.arrived + item.tile;
      uint32_t there;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(arrived) : "memory");
      } while (there < n);
      if (atomicAdd(arrived, 1u) == 2 * n - 1) *arrived = 0;
    }
    meet_multipliers();
    const float4* from = nodes_of(item);
    const TilePlace at = tile_at<kPlanes, kColumns>(tasks, item.tile);
    if (walk.n_parts == 2) join<2>(item, at, from);
    if (walk.n_parts == 4) join<4>(item, at, from);
    if (walk.n_parts == 8) join<8>(item, at, from);
  }
  template <int kParts>
  __device__ void join(const Item& item, const TilePlace& at, const float4* from) const {
    constexpr int kShare = kVectors / kParts;
    const int begin = item.first_chunk / item.n_chunks * kShare;
    const MmaTask& task = tasks.task[at.task];
    for (int i = begin + t; i < begin + kShare; i += 2 * kGroupThreads) {
      float4 c[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p) c[p] = __ldcg(from + p * kVectors + i);
#pragma unroll
      for (int width = 1; width < kParts; width *= 2) {
#pragma unroll
        for (int p = 0; p < kParts; p += 2 * width) {
          c[p].x = c[p].x + c[p + width].x, c[p].y = c[p].y + c[p + width].y;
          c[p].z = c[p].z + c[p + width].z, c[p].w = c[p].w + c[p + width].w;
        }
      }
      const float y[4] = {c[0].x, c[0].y, c[0].z, c[0].w};
      const int thread = i % (2 * kGroupThreads), row = at.row_0 + thread / 32 * 16 + thread % 32 / 4;
      const int token = at.token_0 + i / (2 * kGroupThreads) * 8 + 2 * (thread % 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int of_row = row + e / 2 * 8, of_token = token + e % 2;
        if (of_row >= task.n_rows || of_token >= tasks.n_tokens) continue;
        task.y[int64_t{of_token} * task.n_rows + of_row] = task.bias == nullptr ? y[e] : y[e] + task.bias[of_row];
      }
    }
  }

  template <class Format, bool kAccumulate>
  __device__ static void multiply_high(int32_t (&out)[kColumns / 2], const uint32_t (&a)[4], uint64_t b) {
    if constexpr (Format::kSigned) {
      multiply_bytes_signed<kAccumulate>(out, a, b);
    } else {
      multiply_bytes_unsigned<kAccumulate>(out, a, b);
    }
  }
  __device__ static uint64_t columns_of(uint64_t stage, int weight) {
    return stage + static_cast<uint64_t>((weight / 128 * L::kPanelBytes + weight % 128) >> 4);
  }

  template <class Format>
  __device__ void multiply_minima(const Format& w, const Ring& scalars, int half) {
    const uint32_t sums = shared_address(s.sums(scalars.stage)) + static_cast<uint32_t>(half * 64 * 16);
    multiply_halves_64(of_minima[half], w.minima, plain_columns(sums, kColumns * 16));
  }

  // The integers of a superblock, the scales of its rows, and the first of the minima's products (one plane leaves no registers for both).
  template <class Format>
  __device__ void multiply(const Ring& rows, const Ring& columns, const Ring& scalars, Format& w) {
    const uint32_t stage = s.rows(rows.stage), row = static_cast<uint32_t>(t / 32 * 16);
    const uint64_t from = swizzled_columns(s.columns(columns.stage));
    Fragments a[8];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;  // so that nothing of the superblock before is kept
    wait_phase(s.rows_full(rows.stage), rows.phase);
    w.read(stage, row);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w.unpack(stage, row, i, a[2 * i], a[2 * i + 1]);
      if (i == 0) wait_phase(s.columns_full(columns.stage), columns.phase);
      begin_products();
      if (i == 0) {
        multiply_high<Format, false>(sum, a[0].high, columns_of(from, Format::first(0)));
      } else {
        multiply_high<Format, true>(sum, a[2 * i].high, columns_of(from, Format::first(i)));
      }
      multiply_high<Format, true>(sum, a[2 * i + 1].high, columns_of(from, Format::second(i)));
      end_products();
    }
    __syncwarp();
    if (t % 32 == 0) arrive(s.free_of(s.rows_full(rows.stage)));
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = static_cast<int32_t>(static_cast<uint32_t>(sum[i]) << Format::kShift);
    wait_phase(s.scalars_full(scalars.stage), scalars.phase);
    if constexpr (Format::kHasMin) {
#pragma unroll
      for (int half = 0; half < kHalvesAtOnce; ++half) clear_minima(half);
    }
    begin_products();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply_bytes_unsigned<true>(sum, a[2 * i].low, columns_of(from, Format::first(i)));
      multiply_bytes_unsigned<true>(sum, a[2 * i + 1].low, columns_of(from, Format::second(i)));
    }
    if constexpr (Format::kHasMin) {
#pragma unroll
      for (int half = 0; half < kHalvesAtOnce; ++half) multiply_minima(w, scalars, half);
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
  template <class Format>
  __device__ void add_terms(Format& w, const Ring& scalars) {
    if constexpr (Format::kHasMin && kHalves > kHalvesAtOnce) {
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
      if constexpr (Format::kHasMin && kHalves > kHalvesAtOnce) {
        if (n == 8) wait_products<0>();
      }
      const float2 x_d = *reinterpret_cast<const float2*>(token_d + 8 * n + 2 * (t % 4));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 4 * n + e;
        float f = static_cast<float>(sum[i]), m = Format::kHasMin ? of_minima[i / 32][i % 32] : 0.0f;
        if constexpr (kPlanes == 2) {
          f = num::fma(0x1p-7f, static_cast<float>(sum[4 * kN + i]), f);  // quant::join_planes
          if constexpr (Format::kHasMin) m = num::fma(0x1p-7f, of_minima[(4 * kN + i) / 32][(4 * kN + i) % 32], m);
        }
        const float term = quant::block_term(Format::kHasMin, w.d[e / 2], f, m), d = e % 2 == 0 ? x_d.x : x_d.y;
        if constexpr (kSingle) {
          chain[i] = chain[i] + num::fma(d, term, 0.0f);  // a chain of one term, and its neighbour's if there is one
        } else {
          chain[i] = num::fma(d, term, chain[i]);
        }
      }
    }
  }

  template <class Format>
  __device__ void add_superblock(const Ring& rows, const Ring& columns, const Ring& scalars) {
    Format w;
    multiply(rows, columns, scalars, w);
    if (t % 32 == 0) arrive(s.free_of(s.columns_full(columns.stage)));
    add_terms(w, scalars);
    __syncwarp();
    if (t % 32 == 0) arrive(s.free_of(s.scalars_full(scalars.stage)));
  }

  __device__ void run() {
    wait_for_previous();
    Ring rows, columns, scalars;
    for (int i = static_cast<int>(blockIdx.x); i < walk.n_items; i += static_cast<int>(gridDim.x)) {
      const Item item(walk, i);
      const TilePlace at = tile_at<kPlanes, kColumns>(tasks, item.tile);
      clear();
      int chunk = 0, block = chunk_begin(item.first_chunk);
      for (const int end = chunk_begin(item.first_chunk + item.n_chunks); block < end; ++block) {
        for (; chunk_begin(item.first_chunk + chunk + 1) <= block; ++chunk) end_chunk(chunk, item.n_chunks);
        if (F::kMixed && (walk.second >> at.task & 1) != 0) {
          add_superblock<typename F::Second>(rows, columns, scalars);
        } else {
          add_superblock<typename F::First>(rows, columns, scalars);
        }
        rows.next(kRowStages);
        columns.next(kColumnStages);
        scalars.next(kScalarStages);
      }
      for (; chunk < item.n_chunks; ++chunk) end_chunk(chunk, item.n_chunks);
      if (item.n_chunks == 8) {
        write(at);
      } else {
        hand_over(item);
      }
    }
    for (int i = static_cast<int>(blockIdx.x); i < walk.n_split * walk.n_parts; i += static_cast<int>(gridDim.x)) join_parts(Item(walk, i));
  }
};

template <class F, int kPlanes, int kColumns, bool kSingle>
__global__ void __launch_bounds__(kGroupsThreads, 1)
    batch_wgmma_kernel(const __grid_constant__ MmaTasks tasks, const __grid_constant__ Walk walk, const __grid_constant__ GroupMaps maps,
                       float4* scratch) {
  extern __shared__ __align__(1024) std::byte memory[];
  const Shared<F, kPlanes, kColumns> shared(memory);
  if (threadIdx.x == 0) shared.make_barriers();
  __syncthreads();
  let_next_start();
  const int t = static_cast<int>(threadIdx.x);
  constexpr int kFewRegisters = kPlanes == 1 && kColumns == 128 && F::kHasMin ? 24 : 40;  // where the others need every one
  if (t < kGroupThreads) {
    give_registers<kFewRegisters>();
    Filler<F, kPlanes, kColumns>{tasks, walk, maps, shared}.run(t);
  } else {
    take_registers<256 - kFewRegisters / 2 - 4>();
    Multiplier<F, kPlanes, kColumns, kSingle>(tasks, walk, shared, t - kGroupThreads,
                                              scratch + size_t{blockIdx.x} * (kHopperScratchBytes / sizeof(float4)))
        .run();
  }
}

template <class F, int kPlanes, int kColumns>
bool make_maps(const MmaTasks& tasks, uint32_t second, const Hopper& hopper, GroupMaps& maps) {
  bool made = make_column_maps(tasks, hopper, 128, kColumns / kPlanes, maps);
  for (int i = 0; i < tasks.n; ++i) {
    made &= (second >> i & 1) != 0 ? make_row_maps<typename F::Second>(tasks, i, hopper, maps)
                                   : make_row_maps<typename F::First>(tasks, i, hopper, maps);
  }
  return made;
}

// Whole rounds of tiles for all multiprocessors; of the tiles left over each is split so that the parts go round in the least time.
Walk split_evenly(int n_tiles, int n_blocks, int n_processors) {
  // In superblocks of a tile: to leave a part's sums, to read them.
  constexpr double kPut = 0.35, kGet = 1;
  Walk walk;
  const int n_left = n_tiles % n_processors;
  double least = n_blocks;
  for (int parts = 2; parts <= 8 && n_left > 0; parts *= 2) {
    const int rounds = (n_left * parts + n_processors - 1) / n_processors;
    const double cost = rounds * ((n_blocks + parts - 1) / parts + kPut) + kGet;
    if (cost >= least || rounds > kHopperPartsEach) continue;
    least = cost, walk.n_split = n_left, walk.n_parts = parts;
  }
  walk.n_items = n_tiles + walk.n_split * (walk.n_parts - 1);
  return walk;
}

template <class F, int kPlanes, int kColumns, bool kSingle>
bool launch_kernel(MmaTasks& tasks, uint32_t second, const Hopper& hopper, const Queue& queue) {
  constexpr int kBytes = Layout<F, kPlanes, kColumns>::kBytes;
  const auto kernel = batch_wgmma_kernel<F, kPlanes, kColumns, kSingle>;
  GroupMaps maps;
  if (!make_maps<F, kPlanes, kColumns>(tasks, second, hopper, maps)) return false;
  if (!allow_shared(kernel, kBytes)) return false;
  number_tiles(tasks, kColumns);
  Walk walk = split_evenly(tasks.n_tiles, tasks.n_blocks, hopper.n_processors);
  walk.second = second;
  walk.nodes = reinterpret_cast<float4*>(hopper.parts);
  walk.arrived = hopper.arrived;
  launch(queue, kernel, dim3(static_cast<unsigned>(std::min(walk.n_items, hopper.n_processors))), kGroupsThreads, kBytes, tasks, walk, maps,
         reinterpret_cast<float4*>(hopper.scratch));
  return true;
}
template <class F, int kPlanes, int kColumns>
bool launch_columns(MmaTasks& tasks, uint32_t second, const Hopper& hopper, const Queue& queue) {
  return tasks.n_blocks == 8 ? launch_kernel<F, kPlanes, kColumns, true>(tasks, second, hopper, queue)
                             : launch_kernel<F, kPlanes, kColumns, false>(tasks, second, hopper, queue);
}
template <class F, int kPlanes>
bool launch_planes(MmaTasks& tasks, uint32_t second, const Hopper& hopper, const Queue& queue) {
  return tasks.n_tokens * kPlanes <= 64 ? launch_columns<F, kPlanes, 64>(tasks, second, hopper, queue)
                                        : launch_columns<F, kPlanes, 128>(tasks, second, hopper, queue);
}
template <class F>
bool launch_formats(MmaTasks& tasks, uint32_t second, const Hopper& hopper, const Queue& queue) {
  return tasks.x.planes == 2 ? launch_planes<F, 2>(tasks, second, hopper, queue) : launch_planes<F, 1>(tasks, second, hopper, queue);
}

}  // namespace

bool linear_batch_wgmma(std::span<const LinearTask> linears, MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  uint32_t of_4 = 0, of_5 = 0, of_6 = 0;
  for (size_t i = 0; i < linears.size(); ++i) {
    const tensor::DType dtype = linears[i].w->dtype;
    (dtype == tensor::DType::Q4_K ? of_4 : dtype == tensor::DType::Q5_K ? of_5 : of_6) |= 1u << i;
  }
  if (of_4 == 0 && of_5 == 0) return launch_formats<Formats<WgmmaQ6_K>>(tasks, 0, hopper, queue);
  const auto run = [&]<class F>(F) { return launch_formats<F>(tasks, F::kMixed ? of_6 : 0, hopper, queue); };
  if (of_4 != 0 && of_5 != 0) return false;
  if (of_5 != 0) return of_6 == 0 ? run(Formats<WgmmaQ5_K>()) : run(Formats<WgmmaQ5_K, WgmmaQ6_K>());
  return of_6 == 0 ? run(Formats<WgmmaQ4_K>()) : run(Formats<WgmmaQ4_K, WgmmaQ6_K>());
}

bool linear_wgmma_256(tensor::DType dtype, MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  if (dtype == tensor::DType::Q4_K) return launch_formats<Formats<WgmmaQ4_K>>(tasks, 0, hopper, queue);
  if (dtype == tensor::DType::Q5_K) return launch_formats<Formats<WgmmaQ5_K>>(tasks, 0, hopper, queue);
  if (dtype == tensor::DType::Q6_K) return launch_formats<Formats<WgmmaQ6_K>>(tasks, 0, hopper, queue);
  return false;
}

}  // namespace assay::backend::cuda
