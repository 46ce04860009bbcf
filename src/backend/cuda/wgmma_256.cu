// Prefill of the superblock formats on Hopper (sm_90a): blocks of 12 warps stay on their multiprocessor and take tile after tile of 128 rows x
// 128 columns, a column being a plane of a token's activations. Four warps fill shared memory, two groups of four multiply 64 rows each: the
// high digits of a superblock's weights, a shift by 8 bits, the low digits, so that one integer an output and superblock comes out of the
// tensor cores. Minima times sums of activations are a product of half-precision integers (at most 63 and 2,032, so exact). Floats follow the
// contract, one chain an output in a register.
#include <algorithm>

#include "backend/cuda/copy_map.cuh"
#include "backend/cuda/mma_tile.cuh"
#include "backend/cuda/wgmma_formats.cuh"
#include "backend/cuda/wgmma_steps.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kGroupThreads = 128, kThreads = 3 * kGroupThreads;
constexpr int kColumnStages = 3, kRowStages = 2, kScalarStages = 3;  // superblocks under way
constexpr int kPanelBytes = kTileColumns * 128, kStageColumnsBytes = 2 * kPanelBytes;  // 128 weights of every column side by side
constexpr int kScalarThreads = 64;

// The matrices as the copy engine sees them: parts of each task's weights, planes of the activations.
struct Maps {
  CUtensorMap rows[kLinearsMax][3], columns[2];
};

template <class Format, int kPlanes>
struct Layout {
  static constexpr int kSumsBytes = Format::kHasMin ? kTileColumns * 32 : 0;
  static constexpr int kWaitingFloats = kTileRows * kTileColumns / kPlanes;
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
  __device__ explicit Shared(std::byte* m) : memory(m), base(shared_address(m)) {}

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

struct TilePlace {
  int task, row_0, token_0;
};
template <int kPlanes>
__device__ TilePlace tile_at(const MmaTasks& tasks, int tile) {
  int i = 0;
  while (i + 1 < tasks.n && tile >= tasks.task[i + 1].first_tile) ++i;
  const int at = tile - tasks.task[i].first_tile;
  return {i, at / tasks.n_token_tiles * kTileRows, at % tasks.n_token_tiles * (kTileColumns / kPlanes)};
}

// The warps that fill the stages: one thread starts the copies of the columns, one those of the rows; two warps bring what must be converted.
template <class Format, int kPlanes>
struct Filler {
  using L = Layout<Format, kPlanes>;
  static constexpr int kTokens = kTileColumns / kPlanes;
  const MmaTasks& tasks;
  const Maps& maps;
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
  static constexpr int kN = 16 / kPlanes;  // column tiles of outputs
  const MmaTasks& tasks;
  const Shared<Format, kPlanes> s;
  const int t;  // of the two groups' threads
  float4 *const one, *const two, *const four;  // sums of so many chunks that wait for their neighbours
  float chain[4 * kN];
  int32_t sum[64];
  float of_minima[2][32];  // minima times sums of the first 64 columns, of the others

  __device__ Multiplier(const MmaTasks& all, const Shared<Format, kPlanes>& shared, int thread, float4* scratch)
      : tasks(all), s(shared), t(thread), one(shared.waiting()),
        two(kPlanes == 2 ? one + L::kWaitingFloats / 4 : kSingle ? one : scratch + L::kWaitingFloats / 4), four(scratch) {}

  __device__ int chunk_begin(int i) const { return i * tasks.n_blocks / 8; }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 4 * kN; ++i) chain[i] = 0.0f;
  }
  __device__ void put(float4* to) const {
#pragma unroll
    for (int i = 0; i < kN; ++i) to[i * 2 * kGroupThreads + t] = {chain[4 * i], chain[4 * i + 1], chain[4 * i + 2], chain[4 * i + 3]};
  }
  __device__ void add(const float4* from) {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      const float4 v = from[i * 2 * kGroupThreads + t];
      chain[4 * i] = v.x + chain[4 * i], chain[4 * i + 1] = v.y + chain[4 * i + 1];
      chain[4 * i + 2] = v.z + chain[4 * i + 2], chain[4 * i + 3] = v.w + chain[4 * i + 3];
    }
  }
  __device__ void end_chunk(int chunk, const TilePlace& at) {
    if (chunk % 2 == 0) {
      if constexpr (kSingle) return;  // the next superblock's term is added to it
      put(one);
    } else {
      if constexpr (!kSingle) add(one);
      if (chunk % 4 == 1) {
        put(two);
      } else {
        add(two);
        if (chunk == 3) put(four);
        if (chunk == 7) write(at);
      }
    }
    clear();
  }
  __device__ void write(const TilePlace& at) {
    add(four);
    const int row = at.row_0 + t / 32 * 16 + t % 32 / 4, token = at.token_0 + 2 * (t % 4);
    const MmaTask& task = tasks.task[at.task];
    const int n_rows = task.n_rows - row, n_tokens = tasks.n_tokens - token;
    const float* b = task.bias;
    const float bias[2] = {b != nullptr && n_rows > 0 ? b[row] : 0.0f, b != nullptr && n_rows > 8 ? b[row + 8] : 0.0f};
    int64_t step = task.n_rows;
    asm volatile("" : "+l"(step));  // no address is worth a register while superblocks are multiplied
    float* y = task.y + token * step + row;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& v = chain[4 * n + e];
        if (b != nullptr) v = v + bias[e / 2];
        if (8 * n + e % 2 < n_tokens && e / 2 * 8 < n_rows) y[e % 2 * step + e / 2 * 8] = v;
      }
      y += 8 * step;
    }
  }

  __device__ static void multiply_high(int32_t (&out)[64], const uint32_t (&a)[4], uint64_t b, int accumulate) {
    if constexpr (Format::kSigned) {
      multiply_bytes_signed(out, a, b, accumulate);
    } else {
      multiply_bytes_unsigned(out, a, b, accumulate);
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
      multiply_high(sum, a[2 * i].high, columns_of(from, Format::first(i)), i != 0);
      multiply_high(sum, a[2 * i + 1].high, columns_of(from, Format::second(i)), 1);
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
      multiply_bytes_unsigned(sum, a[2 * i].low, columns_of(from, Format::first(i)), 1);
      multiply_bytes_unsigned(sum, a[2 * i + 1].low, columns_of(from, Format::second(i)), 1);
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
        if constexpr (kSingle) {
          chain[i] = chain[i] + num::fma(d, term, 0.0f);  // a chain of one term, and its neighbour's if there is one
        } else {
          chain[i] = num::fma(d, term, chain[i]);
        }
      }
    }
  }

  __device__ void run() {
    Ring rows, columns, scalars;
    for (int tile = static_cast<int>(blockIdx.x); tile < tasks.n_tiles; tile += static_cast<int>(gridDim.x)) {
      const TilePlace at = tile_at<kPlanes>(tasks, tile);
      clear();
      int chunk = 0;
      for (int block = 0; block < tasks.n_blocks; ++block) {
        for (; chunk_begin(chunk + 1) <= block; ++chunk) end_chunk(chunk, at);
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
      for (; chunk < 8; ++chunk) end_chunk(chunk, at);
    }
  }
};

template <class Format, int kPlanes, bool kSingle>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_256_kernel(const __grid_constant__ MmaTasks tasks, const __grid_constant__ Maps maps, float4* scratch) {
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

template <class Format, int kPlanes>
bool make_maps(const MmaTasks& tasks, const Hopper& hopper, Maps& maps) {
  bool made = true;
  for (int i = 0; i < tasks.n; ++i) {
    for (int p = 0; p < Format::kParts; ++p) {
      const WgmmaPart part = Format::part(p);
      made &= make_map(hopper, tasks.task[i].w.base[part.part], int64_t{tasks.n_blocks} * part.bytes, tasks.task[i].n_rows, part.bytes, kTileRows,
                       maps.rows[i][p]);
    }
  }
  for (int plane = 0; plane < kPlanes; ++plane) {
    made &= make_map(hopper, plane == 0 ? tasks.x.q : tasks.x.l, tasks.x.k, tasks.n_tokens, 128, kTileColumns / kPlanes, maps.columns[plane]);
  }
  return made;
}

template <class Format, int kPlanes, bool kSingle>
bool launch_kernel(MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  constexpr int kBytes = Layout<Format, kPlanes>::kBytes;
  const auto kernel = wgmma_256_kernel<Format, kPlanes, kSingle>;
  Maps maps;
  if (!make_maps<Format, kPlanes>(tasks, hopper, maps)) return false;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes) != cudaSuccess) {
    cudaGetLastError();  // forgotten: it is an answer
    return false;
  }
  const int tokens = kTileColumns / kPlanes;
  tasks.n_token_tiles = (tasks.n_tokens + tokens - 1) / tokens;
  tasks.n_tiles = 0;
  for (int i = 0; i < tasks.n; ++i) {
    tasks.task[i].first_tile = tasks.n_tiles;
    tasks.n_tiles += (tasks.task[i].n_rows + kTileRows - 1) / kTileRows * tasks.n_token_tiles;
  }
  launch(queue, kernel, dim3(static_cast<unsigned>(std::min(tasks.n_tiles, hopper.n_processors))), kThreads, kBytes, tasks, maps,
         reinterpret_cast<float4*>(hopper.scratch));
  return true;
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
