// Products of superblock formats with several tokens on Hopper (sm_90a). A cluster of 1, 2, 4 or 8 blocks of threads shares K by the contract's
// chunks: each block keeps its chunks of all tokens' activations in shared memory, its 8 warps take tiles of rows, whose weights come straight
// from memory, each through a ring of its own. Tokens (times planes) are columns of int8 products (mma.m16n8k32), sub-scales are multiplied
// in as integers, one float term a superblock. When 8 tiles are done the blocks share out the rest of the tree.
#include <algorithm>

#include "backend/cuda/batch_formats.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/linear.h"
#include "num/lanes.h"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRowTiles = 2;  // of 16 rows, of a warp's tile
constexpr int kSharedMax = 227 * 1024;

struct BatchTask {
  Parts w;
  int32_t format = 0;  // 4, 5 or 6 bits
  int32_t n_rows = 0, first_tile = 0;
  const float* bias = nullptr;
  float* y = nullptr;
};
struct BatchTasks {
  BatchTask task[kLinearsMax];
  int32_t n = 0, n_blocks = 0, n_tokens = 0, n_rounds = 0;
  int32_t stage_bytes = 0, n_blocks_most = 0;  // of a warp's ring; superblocks of a block of threads at most
  bool has_min = false;
  quant::Activations x;
};

// kM tiles of 16 rows, kN of 8 columns; a column is a plane of a token, planes one after the other. kCluster blocks of threads share K.
template <int kPlanes_, int kM_, int kN_, int kStages_, int kBlocksPerProcessor_, int kCluster_>
struct Shape {
  static constexpr int kPlanes = kPlanes_, kM = kM_, kN = kN_, kStages = kStages_, kBlocksPerProcessor = kBlocksPerProcessor_;
  static constexpr int kCluster = kCluster_, kChunks = 8 / kCluster;  // chunks of a block
  static constexpr int kLevels = kChunks == 1 ? 0 : kChunks == 2 ? 1 : kChunks == 4 ? 2 : 3;  // of the tree within a block
  static constexpr int kRows = 16 * kM, kColumns = 8 * kN, kT = kN / kPlanes, kTokens = 8 * kT;
  static constexpr int kTileVectors = kM * kT * 32;  // float4 of a tile's sums
  static constexpr int kSumsVectors = kWarps * kTileVectors, kSumsBytes = (kLevels == 0 ? 1 : kLevels) * kSumsVectors * 16;

  // Shared memory: sums that wait for their neighbours in the tree, activations, their sums of 16, their scales, the rings.
  __host__ __device__ static constexpr int columns_at() { return kSumsBytes; }
  __host__ __device__ static constexpr int group_sums_at(int n_blocks) { return columns_at() + n_blocks * kColumns * 256; }
  __host__ __device__ static constexpr int scales_at(int n_blocks, bool has_min) {
    return group_sums_at(n_blocks) + (has_min ? n_blocks * kColumns * 32 : 0);
  }
  __host__ __device__ static constexpr int rings_at(int n_blocks, bool has_min) {
    return (scales_at(n_blocks, has_min) + n_blocks * kTokens * 4 + 127) / 128 * 128;
  }
  static constexpr int bytes(const BatchTasks& t) { return rings_at(t.n_blocks_most, t.has_min) + kWarps * kStages * t.stage_bytes; }
};

__device__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ float4 floats_of_block(uint32_t shared, uint32_t rank) {
  uint32_t there;
  float4 v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(there) : "memory");
  return v;
}
__device__ uint32_t halves_of(uint32_t pair) {
  const __half2 h = __halves2half2(__short2half_rn(static_cast<int16_t>(pair & 0xFFFFu)), __short2half_rn(static_cast<int16_t>(pair >> 16)));
  return *reinterpret_cast<const uint32_t*>(&h);
}

template <class S>
struct Kernel {
  static constexpr int kM = S::kM, kN = S::kN, kT = S::kT, kPlanes = S::kPlanes;
  const BatchTasks& tasks;
  std::byte* const memory;
  const uint32_t base;
  const int rank, warp, token_0, n_clusters;
  const int begin, n_own;  // superblocks of its chunks
  const uint32_t rings;    // the warp's
  float* const scales;     // of activations
  std::byte* const group_sums;
  const BatchLane lane;
  float chain[kM][kT][4];

  __device__ Kernel(const BatchTasks& all, std::byte* shared)
      : tasks(all),
        memory(shared),
        base(shared_address(shared)),
        rank(S::kCluster == 1 ? 0 : static_cast<int>(cluster_rank())),
        warp(static_cast<int>(threadIdx.x) / 32),
        token_0(static_cast<int>(blockIdx.y) * S::kTokens),
        n_clusters(static_cast<int>(gridDim.x) / S::kCluster),
        begin(rank * S::kChunks * all.n_blocks / 8),
        n_own((rank + 1) * S::kChunks * all.n_blocks / 8 - begin),
        rings(base + static_cast<uint32_t>(S::rings_at(all.n_blocks_most, all.has_min) + warp * S::kStages * all.stage_bytes)),
        scales(reinterpret_cast<float*>(shared + S::scales_at(all.n_blocks_most, all.has_min))),
        group_sums(shared + S::group_sums_at(all.n_blocks_most)) {}

  // A tile of rows. Where rows are left over the last tile begins before the end of the tile ahead of it.
  struct Tile {
    const BatchTask* task;
    int row, format;
  };
  __device__ Tile tile_at(int tile) const {
    int i = 0;
    while (i + 1 < tasks.n && tile >= tasks.task[i + 1].first_tile) ++i;
    const BatchTask& task = tasks.task[i];
    return {&task, min((tile - task.first_tile) * S::kRows, task.n_rows - S::kRows), task.format};
  }

  // What the warp copies next: superblock `block` of its own, of its tile in round `round`.
  struct Cursor {
    int round, block, format;
    BatchSource source;
  };
  __device__ void begin_tile(Cursor& at, int round) const {
    at.round = round, at.block = 0;
    if (round >= tasks.n_rounds) return;
    const Tile tile = tile_at(round * kWarps + warp);
    at.format = tile.format;
    const int64_t block = int64_t{tile.row} * tasks.n_blocks + begin;
    if (at.format == 4) BatchQ4_K::begin<S::kRows>(at.source, tile.task->w, block, tasks.n_blocks);
    if (at.format == 5) BatchQ5_K::begin<S::kRows>(at.source, tile.task->w, block, tasks.n_blocks);
    if (at.format == 6) BatchQ6_K::begin<S::kRows>(at.source, tile.task->w, block, tasks.n_blocks);
  }
  __device__ void copy_next(Cursor& at, int stage) const {
    if (at.round < tasks.n_rounds && n_own > 0) {
      const uint32_t to = rings + static_cast<uint32_t>(stage * tasks.stage_bytes);
      if (at.format == 4) BatchQ4_K::copy<S::kRows>(at.source, to, tasks.n_blocks);
      if (at.format == 5) BatchQ5_K::copy<S::kRows>(at.source, to, tasks.n_blocks);
      if (at.format == 6) BatchQ6_K::copy<S::kRows>(at.source, to, tasks.n_blocks);
      if (++at.block == n_own) begin_tile(at, at.round + n_clusters);
    }
    end_copies();
  }

  // Its chunks of the activations, by the whole block of threads.
  __device__ void take_columns() const {
    const quant::Activations& x = tasks.x;
    const auto token_of = [&](int column) { return min(token_0 + column % S::kTokens, tasks.n_tokens - 1); };
    for (int i = static_cast<int>(threadIdx.x); i < n_own * S::kColumns * 16; i += kThreads) {
      const int piece = i % 16, block = i / 16 % n_own, column = i / 16 / n_own;
      const int8_t* from = (column < S::kTokens ? x.q : x.l) + (int64_t{token_of(column)} * tasks.n_blocks + begin + block) * 256 + 16 * piece;
      const uint32_t exchanged = static_cast<uint32_t>(piece % 8) ^ exchange_of(static_cast<uint32_t>(column));
      copy_16(base + static_cast<uint32_t>(S::columns_at() + (block * S::kColumns + column) * 256 + piece / 8 * 128) + 16 * exchanged, from, true);
    }
    end_copies();
    for (int i = static_cast<int>(threadIdx.x); i < n_own * S::kTokens; i += kThreads) {
      const int block = i % n_own, token = i / n_own;
      scales[block * S::kTokens + token] = x.d[int64_t{token_of(token)} * tasks.n_blocks + begin + block];
    }
    if (!tasks.has_min) return;
    auto* sums = reinterpret_cast<uint4*>(group_sums);
    for (int i = static_cast<int>(threadIdx.x); i < n_own * S::kColumns * 2; i += kThreads) {
      const int half = i % 2, block = i / 2 % n_own, column = i / 2 / n_own;
      const int16_t* of_plane = column < S::kTokens ? x.q_sums : x.l_sums;
      const uint4 v = reinterpret_cast<const uint4*>(of_plane + (int64_t{token_of(column)} * tasks.n_blocks + begin + block) * 16)[half];
      sums[(block * S::kColumns + column) * 2 + half] = {halves_of(v.x), halves_of(v.y), halves_of(v.z), halves_of(v.w)};
    }
  }

  // Superblock `block` of its own, whose weights lie at `from`, into the chains.
  template <class Format>
  __device__ void multiply(uint32_t from, int block, bool odd) {
    int32_t sum[kM][kN][4] = {};
    const uint32_t columns = base + static_cast<uint32_t>(S::columns_at() + block * S::kColumns * 256) + lane.row * 128;  // a column has two lines
    typename Format::template Rows<kM> rows(from, lane);
#pragma unroll
    for (int group = 0; group < 4; ++group) {
      rows.load(group);
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const int sub = Format::sub(group, which);
        uint32_t a[kM][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) rows.fragment(m, group, which, a[m]);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          uint32_t b[2];
          Format::columns_at(columns + static_cast<uint32_t>(n * 8 * 256 + sub / 4 * 128), lane, sub, b);
#pragma unroll
          for (int m = 0; m < kM; ++m) rows.add_product(m, group, which, a[m], b, sum[m][n]);
        }
      }
    }
    add_terms<Format>(rows, block, odd, sum);
  }

  template <class Format, class Rows>
  __device__ void add_terms(const Rows& rows, int block, bool odd, const int32_t (&sum)[kM][kN][4]) {
    const float* of_tokens = scales + block * S::kTokens + 2 * lane.place;
    const auto* sums = reinterpret_cast<const uint32_t*>(group_sums) + block * S::kColumns * 8 + lane.row * 8;
    quant::BlockScales d[kM][2];
    uint32_t minima[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if constexpr (Format::kHasMin) {
        rows.finish(m, d[m], minima[m]);
      } else {
        rows.finish(m, d[m], odd);
      }
    }
#pragma unroll
    for (int t = 0; t < kT; ++t) {
      const float2 x_d = *reinterpret_cast<const float2*>(of_tokens + 8 * t);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        float g[kPlanes][4] = {};
        if constexpr (Format::kHasMin) {
#pragma unroll
          for (int plane = 0; plane < kPlanes; ++plane) {
            const uint32_t* of_column = sums + (plane * kT + t) * 64 + lane.place;
            multiply_halves(minima[m], of_column[0], of_column[4], g[plane]);
          }
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float f = static_cast<float>(sum[m][t][e]), of_minima = g[0][e];
          if constexpr (kPlanes == 2) {  // quant::join_planes
            f = num::fma(0x1p-7f, static_cast<float>(sum[m][kT + t][e]), f);
            of_minima = num::fma(0x1p-7f, g[kPlanes - 1][e], of_minima);
          }
          chain[m][t][e] = num::fma(e % 2 == 0 ? x_d.x : x_d.y, quant::block_term(Format::kHasMin, d[m][e / 2], f, of_minima), chain[m][t][e]);
        }
      }
    }
  }

  // The sums of a finished chunk, the `chunk`-th of the block, on their way through the block's part of the tree. Each level has a place for one sum
  // that waits for the next.
  __device__ float4* place(int level) const {
    return reinterpret_cast<float4*>(memory) + level * S::kSumsVectors + warp * S::kTileVectors + threadIdx.x % 32;
  }
  __device__ void put(float4* to) const {
#pragma unroll
    for (int i = 0; i < kM * kT; ++i) {
      const float (&c)[4] = chain[i / kT][i % kT];
      to[32 * i] = {c[0], c[1], c[2], c[3]};
    }
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 4 * kM * kT; ++i) chain[i / (4 * kT)][i / 4 % kT][i % 4] = 0.0f;
  }
  __device__ void end_chunk(int chunk) {
#pragma unroll
    for (int level = 0; level < S::kLevels; ++level) {
      if ((chunk >> level & 1) == 0) {
        put(place(level));
        return clear();
      }
      const float4* from = place(level);
#pragma unroll
      for (int i = 0; i < kM * kT; ++i) {
        const float4 v = from[32 * i];
        float (&c)[4] = chain[i / kT][i % kT];
        c[0] = v.x + c[0], c[1] = v.y + c[1], c[2] = v.z + c[2], c[3] = v.w + c[3];
      }
    }
  }

  // Vector i of a tile (its sums as a lane holds them) into y.
  __device__ void write(const Tile& tile, int i, const float (&y)[4]) const {
    const BatchTask& task = *tile.task;
    const int in_tile = i / 32, row = tile.row + in_tile / kT * 16 + i % 32 / 4, token = token_0 + in_tile % kT * 8 + i % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int of_row = row + e / 2 * 8, of_token = token + e % 2;
      if (of_token >= tasks.n_tokens) continue;
      task.y[int64_t{of_token} * task.n_rows + of_row] = task.bias == nullptr ? y[e] : y[e] + task.bias[of_row];
    }
  }
  // The rest of the tree: of every block's share of the round's tiles, whose sums lie in all blocks of the cluster.
  __device__ void join(int round) const {
    constexpr int kShare = kWarps / S::kCluster * S::kTileVectors;
    for (int i = static_cast<int>(threadIdx.x); i < kShare; i += kThreads) {
      float4 c[S::kCluster];
      const uint32_t at = base + static_cast<uint32_t>((rank * kShare + i) * 16);
#pragma unroll
      for (int block = 0; block < S::kCluster; ++block) c[block] = floats_of_block(at, static_cast<uint32_t>(block));
      const auto tree = [&](float float4::* p) {
        if constexpr (S::kCluster == 8) return ((c[0].*p + c[1].*p) + (c[2].*p + c[3].*p)) + ((c[4].*p + c[5].*p) + (c[6].*p + c[7].*p));
        if constexpr (S::kCluster == 4) return (c[0].*p + c[1].*p) + (c[2].*p + c[3].*p);
        return c[0].*p + c[1 % S::kCluster].*p;
      };
      const float y[4] = {tree(&float4::x), tree(&float4::y), tree(&float4::z), tree(&float4::w)};
      write(tile_at(round * kWarps + rank * (kWarps / S::kCluster) + i / S::kTileVectors), i % S::kTileVectors, y);
    }
  }
  __device__ void end_round(int round, const Tile& tile) const {
    if constexpr (S::kCluster == 1) {
#pragma unroll
      for (int i = 0; i < kM * kT; ++i) write(tile, 32 * i + static_cast<int>(threadIdx.x) % 32, chain[i / kT][i % kT]);
    } else {
      put(place(0));
      meet_cluster();
      join(round);
      meet_cluster();
    }
  }

  __device__ void run() {
    const int first_round = static_cast<int>(blockIdx.x) / S::kCluster;
    Cursor ahead;
    begin_tile(ahead, first_round);
#pragma unroll
    for (int i = 0; i < S::kStages - 1; ++i) copy_next(ahead, i);
    wait_for_previous();
    take_columns();
    wait_copies<0>();
    __syncthreads();
    int at = 0;  // stage
    const auto chunk_end = [&](int chunk) { return (rank * S::kChunks + chunk + 1) * tasks.n_blocks / 8 - begin; };
    for (int round = first_round; round < tasks.n_rounds; round += n_clusters) {
      const Tile tile = tile_at(round * kWarps + warp);
      clear();
      for (int chunk = 0, block = 0; chunk < S::kChunks; ++chunk) {
        for (const int end = chunk_end(chunk); block < end; ++block) {
          wait_copies<S::kStages - 2>();
          __syncwarp();
          copy_next(ahead, at == 0 ? S::kStages - 1 : at - 1);
          const uint32_t stage = rings + static_cast<uint32_t>(at * tasks.stage_bytes);
          if (tile.format == 6) {  // whether the superblock's number is odd in the lane's rows; 8 rows further lies an even number of them
            multiply<BatchQ6_K>(stage, block, ((begin + block + (tile.row + static_cast<int>(lane.row)) * tasks.n_blocks) & 1) != 0);
          } else if (tile.format == 5) {
            multiply<BatchQ5_K>(stage, block, false);
          } else {
            multiply<BatchQ4_K>(stage, block, false);
          }
          at = at + 1 == S::kStages ? 0 : at + 1;
        }
        end_chunk(chunk);
      }
      end_round(round, tile);
    }
    wait_copies<0>();
  }
};

template <class S>
__global__ void __launch_bounds__(kThreads, S::kBlocksPerProcessor) batch_256_kernel(const __grid_constant__ BatchTasks tasks) {
  extern __shared__ __align__(128) std::byte memory[];
  let_next_start();
  Kernel<S>(tasks, memory).run();
}

// False, and nothing done, where shared memory cannot hold what the shape needs.
template <class S>
bool launch_shape(BatchTasks& tasks, const Queue& queue) {
  int n_tiles = 0, row_bytes = 0;
  for (int i = 0; i < tasks.n; ++i) {
    BatchTask& task = tasks.task[i];
    if (task.n_rows < S::kRows) return false;
    task.first_tile = n_tiles;
    n_tiles += (task.n_rows + S::kRows - 1) / S::kRows;
    row_bytes = std::max(row_bytes, task.format == 4 ? BatchQ4_K::kRowBytes : task.format == 5 ? BatchQ5_K::kRowBytes : BatchQ6_K::kRowBytes);
  }
  tasks.n_rounds = (n_tiles + kWarps - 1) / kWarps;
  tasks.stage_bytes = S::kRows * row_bytes;
  tasks.n_blocks_most = (tasks.n_blocks * S::kChunks + 7) / 8;
  const int bytes = S::bytes(tasks);
  if (bytes > kSharedMax) return false;
  const auto kernel = batch_256_kernel<S>;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess) {
    cudaGetLastError();  // forgotten: it is an answer
    return false;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {S::kCluster, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  const int n_token_tiles = (tasks.n_tokens + S::kTokens - 1) / S::kTokens;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(S::kCluster, static_cast<unsigned>(n_token_tiles));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = queue.stream;
  config.attrs = attributes;
  config.numAttrs = 1;
  int n_at_once = 0;
  if (cudaOccupancyMaxActiveClusters(&n_at_once, kernel, &config) != cudaSuccess || n_at_once == 0) {
    cudaGetLastError();
    return false;
  }
  // Clusters that run at once share the rounds out evenly.
  const int most = std::max(n_at_once / n_token_tiles, 1), rounds_each = (tasks.n_rounds + most - 1) / most;
  config.gridDim.x = static_cast<unsigned>(S::kCluster * ((tasks.n_rounds + rounds_each - 1) / rounds_each));
  config.numAttrs = queue.overlap ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, tasks);
  return true;
}

// The first of the clusters that gives the device work and fits.
template <int kPlanes, int kN, int kStages, int kBlocksPerProcessor, int kCluster>
bool launch_clusters(BatchTasks& tasks, const Queue& queue) {
  using S = Shape<kPlanes, kRowTiles, kN, kStages, kBlocksPerProcessor, kCluster>;
  int64_t n_rounds = 0;
  for (int i = 0; i < tasks.n; ++i) n_rounds += (tasks.task[i].n_rows + S::kRows - 1) / S::kRows;
  n_rounds = (n_rounds + kWarps - 1) / kWarps * ((tasks.n_tokens + S::kTokens - 1) / S::kTokens);
  if (kCluster == 8 || 2 * n_rounds * kCluster >= queue.n_multiprocessors - 4) {
    if (launch_shape<S>(tasks, queue)) return true;
  }
  if constexpr (kCluster < 8) return launch_clusters<kPlanes, kN, kStages, kBlocksPerProcessor, 2 * kCluster>(tasks, queue);
  return false;
}

// By what the number of tokens asks for; rows of many superblocks leave room for fewer columns. Many columns have no room for many chunks.
template <int kPlanes>
bool launch_planes(BatchTasks& tasks, const Queue& queue) {
  const int n_columns = (tasks.n_tokens + 7) / 8 * 8 * kPlanes;
  if constexpr (kPlanes == 1) {
    if (n_columns <= 8) return launch_clusters<kPlanes, 1, 3, 2, 1>(tasks, queue);
  }
  if (n_columns <= 16) return launch_clusters<kPlanes, 2, 2, 2, 1>(tasks, queue);
  if (n_columns > 32 && launch_clusters<kPlanes, 8, 2, 1, 4>(tasks, queue)) return true;
  return launch_clusters<kPlanes, 4, 2, 1, 2>(tasks, queue) || launch_clusters<kPlanes, 2, 2, 2, 4>(tasks, queue);
}

int bits_of(tensor::DType dtype) {
  return dtype == tensor::DType::Q4_K ? 4 : dtype == tensor::DType::Q5_K ? 5 : dtype == tensor::DType::Q6_K ? 6 : 0;
}

}  // namespace

bool linear_batch(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens, const Hopper& hopper, const Queue& queue) {
  if (hopper.n_processors == 0 || linears.size() > kLinearsMax || x.kind != quant::Activation::a256 || n_tokens > kBatchTokensMax) return false;
  if (n_tokens == 0) return true;
  BatchTasks tasks;
  for (const LinearTask& linear : linears) {
    const int bits = bits_of(linear.w->dtype);
    if (bits == 0 || linear.w->parts.n < 2 || linear.w->rows * (linear.w->cols / 256) > INT32_MAX / 2) return false;
    tasks.task[tasks.n++] = {linear.w->parts, bits, static_cast<int32_t>(linear.w->rows), 0, linear.bias, linear.y};
    tasks.has_min = tasks.has_min || bits != 6;
  }
  tasks.n_blocks = static_cast<int32_t>(x.k / 256);
  tasks.n_tokens = static_cast<int32_t>(n_tokens);
  tasks.x = x;
  // Tiles of 128 rows and columns are faster where there are enough of them to go round.
  int64_t n_rows = 0, n_tiles = 0;
  for (const LinearTask& linear : linears) n_rows += linear.w->rows, n_tiles += (linear.w->rows + 127) / 128 * ((n_tokens * x.planes + 127) / 128);
  const int64_t n_rounds = (n_tiles + hopper.n_processors - 1) / hopper.n_processors;
  if (n_rows * n_tokens * x.planes > (n_rounds << 20)) return false;
  return x.planes == 2 ? launch_planes<2>(tasks, queue) : launch_planes<1>(tasks, queue);
}

}  // namespace assay::backend::cuda
