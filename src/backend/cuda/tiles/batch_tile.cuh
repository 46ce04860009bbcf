// What the kernels for several tokens share (batch_256.cu, batch_32.cu). A cluster of 1, 2, 4 or 8 blocks of threads
// shares K by the contract's chunks; each block of threads has 8 warps, which take tiles of rows. Here stand the tiles,
// the tree over chunks within a block and through the cluster's shared memory, and the launch; what multiplies stands
// with the formats.
//
//   cluster      | block 0: chunks 0 ..  | block 1: the next  | ..  |         all of the same rows and columns
//   block        activations of its chunks, all columns: shared memory, once; 8 warps, each with its tile of 16 kM rows x 8 kN columns
//   warp         weights: memory --> a ring of its own, shared memory --> fragments; mma m16n8k32: integers --> float terms --> chain, registers
//   tree         a block's chunks: levels in its shared memory; the blocks' sums: the cluster's shared memory  ------>  y
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/batch_layout.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/tiles/batch_formats.cuh"

namespace assay::backend::cuda {

inline constexpr int kBatchThreads = 32 * kBatchWarps;

struct BatchTask {
  Parts w;
  int32_t format = 0;  // as the kernel counts them
  int32_t n_rows = 0, first_tile = 0;
  const float* bias = nullptr;
  float* y = nullptr;
};
struct BatchTasks {
  BatchTask task[kLinearsMax];
  int32_t n = 0, n_blocks = 0, n_tokens = 0, n_rounds = 0;
  int32_t stage_bytes = 0, n_blocks_most = 0;  // of a warp's ring; blocks of weights of a block of threads at most
  bool has_min = false;
  quant::Activations x;
};

// A form of kernels/batch_layout.h: kM tiles of 16 rows, kN of 8 columns; a column is a plane of a token, planes one
// after the other. kCluster blocks of threads share K.
template <int kPlanes_, int kN_, int kStages_, int kBlocksPerProcessor_, int kCluster_>
struct BatchShape {
  __host__ __device__ static constexpr BatchForm form() {
    return {kPlanes_, kN_, kStages_, kBlocksPerProcessor_, kCluster_};
  }
  static constexpr int kPlanes = kPlanes_, kM = kBatchRows / 16, kN = kN_, kStages = kStages_,
                       kBlocksPerProcessor = kBlocksPerProcessor_;
  static constexpr int kCluster = kCluster_, kChunks = form().chunks(), kLevels = form().levels();
  static constexpr int kRows = kBatchRows, kColumns = form().columns(), kT = kN / kPlanes, kTokens = form().tokens();
  static constexpr int kTileVectors = kM * kT * 32;  // float4 of a tile's sums
  static constexpr int kSumsVectors = kBatchWarps * kTileVectors, kSumsBytes = form().sums_bytes();
  static_assert(kSumsBytes == (kLevels == 0 ? 1 : kLevels) * kSumsVectors * 16);
};

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" : : : "memory");
}
__device__ inline float4 floats_of_block(uint32_t shared, uint32_t rank) {
  uint32_t there;
  float4 v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(there)
               : "memory");
  return v;
}

// A block of threads at work on its chunks of all rounds; a round is a tile for each warp.
template <class S>
struct BatchTile {
  using Shape = S;
  static constexpr int kM = S::kM, kN = S::kN, kT = S::kT, kPlanes = S::kPlanes;
  const BatchTasks& tasks;
  std::byte* const memory;
  const uint32_t base;
  const int rank, warp, token_0, n_clusters;
  const int begin, n_own;  // blocks of weights of its chunks
  const BatchLane lane;
  float chain[kM][kT][4];

  __device__ BatchTile(const BatchTasks& all, std::byte* shared)
      : tasks(all), memory(shared), base(shared_address(shared)),
        rank(S::kCluster == 1 ? 0 : static_cast<int>(cluster_rank())), warp(static_cast<int>(threadIdx.x) / 32),
        token_0(static_cast<int>(blockIdx.y) * S::kTokens), n_clusters(static_cast<int>(gridDim.x) / S::kCluster),
        begin(rank * S::kChunks * all.n_blocks / 8), n_own((rank + 1) * S::kChunks * all.n_blocks / 8 - begin) {}

  __device__ int token_of(int column) const { return min(token_0 + column % S::kTokens, tasks.n_tokens - 1); }
  // Where chunk `chunk` of its own ends, in blocks of its own.
  __device__ int chunk_end(int chunk) const { return (rank * S::kChunks + chunk + 1) * tasks.n_blocks / 8 - begin; }

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

  // The sums of a finished chunk, the `chunk`-th of the block, on their way through the block's part of the tree. Each
  // level has a place for one sum that waits for the next.
  __device__ float4* place(int level) const {
    return reinterpret_cast<float4*>(memory) + level * S::kSumsVectors + warp * S::kTileVectors + threadIdx.x % 32;
  }
  __device__ void put(float4* to) const {
#pragma unroll
    for (int i = 0; i < kM * kT; ++i) {
      const float(&c)[4] = chain[i / kT][i % kT];
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
        float(&c)[4] = chain[i / kT][i % kT];
        c[0] = v.x + c[0], c[1] = v.y + c[1], c[2] = v.z + c[2], c[3] = v.w + c[3];
      }
    }
  }

  // Vector i of a tile (its sums as a lane holds them) into y.
  __device__ void write(const Tile& tile, int i, const float (&y)[4]) const {
    const BatchTask& task = *tile.task;
    const int in_tile = i / 32, row = tile.row + in_tile / kT * 16 + i % 32 / 4,
              token = token_0 + in_tile % kT * 8 + i % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int of_row = row + e / 2 * 8, of_token = token + e % 2;
      if (of_token >= tasks.n_tokens) continue;
      task.y[int64_t{of_token} * task.n_rows + of_row] = task.bias == nullptr ? y[e] : y[e] + task.bias[of_row];
    }
  }
  // The rest of the tree: of every block's share of the round's tiles, whose sums lie in all blocks of the cluster.
  __device__ void join(int round) const {
    constexpr int kShare = kBatchWarps / S::kCluster * S::kTileVectors;
    for (int i = static_cast<int>(threadIdx.x); i < kShare; i += kBatchThreads) {
      float4 c[S::kCluster];
      const uint32_t at = base + static_cast<uint32_t>((rank * kShare + i) * 16);
#pragma unroll
      for (int block = 0; block < S::kCluster; ++block) c[block] = floats_of_block(at, static_cast<uint32_t>(block));
      const auto tree = [&](float float4::*p) {
        if constexpr (S::kCluster == 8)
          return ((c[0].*p + c[1].*p) + (c[2].*p + c[3].*p)) + ((c[4].*p + c[5].*p) + (c[6].*p + c[7].*p));
        if constexpr (S::kCluster == 4) return (c[0].*p + c[1].*p) + (c[2].*p + c[3].*p);
        return c[0].*p + c[1 % S::kCluster].*p;
      };
      const float y[4] = {tree(&float4::x), tree(&float4::y), tree(&float4::z), tree(&float4::w)};
      write(tile_at(round * kBatchWarps + rank * (kBatchWarps / S::kCluster) + i / S::kTileVectors),
            i % S::kTileVectors, y);
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
};

template <class K>
__global__ void __launch_bounds__(kBatchThreads, K::Shape::kBlocksPerProcessor)
    batch_kernel(const __grid_constant__ BatchTasks tasks) {
  extern __shared__ __align__(128) std::byte memory[];
  let_next_start();
  K(tasks, memory).run();
}

template <class K>
void launch_batch_shape(BatchTasks& tasks, const Queue& queue) {
  using S = typename K::Shape;
  int n_tiles = 0, row_bytes = 0;
  for (int i = 0; i < tasks.n; ++i) {
    BatchTask& task = tasks.task[i];
    task.first_tile = n_tiles;
    n_tiles += (task.n_rows + S::kRows - 1) / S::kRows;
    row_bytes = std::max(row_bytes, K::row_bytes(task.format));
  }
  tasks.n_rounds = (n_tiles + kBatchWarps - 1) / kBatchWarps;
  tasks.stage_bytes = S::kRows * row_bytes;
  tasks.n_blocks_most = batch_blocks_most(S::form(), tasks.n_blocks);
  const int bytes = K::bytes(tasks);
  const auto kernel = batch_kernel<K>;
  require(allow_shared(kernel, static_cast<size_t>(bytes)), "shared memory");
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {S::kCluster, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  const int n_token_tiles = (tasks.n_tokens + S::kTokens - 1) / S::kTokens;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(S::kCluster, static_cast<unsigned>(n_token_tiles));
  config.blockDim = dim3(kBatchThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = queue.stream;
  config.attrs = attributes;
  config.numAttrs = 1;
  int n_at_once = 0;
  if (cudaOccupancyMaxActiveClusters(&n_at_once, kernel, &config) != cudaSuccess || n_at_once == 0) {
    cudaGetLastError();
    require(false, "clusters of blocks of threads");
  }
  // Clusters that run at once share the rounds out evenly.
  const int most = std::max(n_at_once / n_token_tiles, 1), rounds_each = (tasks.n_rounds + most - 1) / most;
  config.gridDim.x = static_cast<unsigned>(S::kCluster * ((tasks.n_rounds + rounds_each - 1) / rounds_each));
  config.numAttrs = queue.overlap ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, tasks);
}

// The kernel of a form: clusters of kCluster and more.
template <template <class> class Kernel, int kPlanes, int kN, int kStages, int kBlocksPerProcessor, int kCluster>
void launch_batch_clusters(const BatchForm& form, BatchTasks& tasks, const Queue& queue) {
  using S = BatchShape<kPlanes, kN, kStages, kBlocksPerProcessor, kCluster>;
  if (form.cluster == kCluster) return launch_batch_shape<Kernel<S>>(tasks, queue);
  if constexpr (kCluster < 8)
    launch_batch_clusters<Kernel, kPlanes, kN, kStages, kBlocksPerProcessor, 2 * kCluster>(form, tasks, queue);
}
template <template <class> class Kernel, int kPlanes, int kStagesOfFew>
void launch_batch_planes(const BatchForm& form, BatchTasks& tasks, const Queue& queue) {
  if constexpr (kPlanes == 1) {
    if (form.n == 1) return launch_batch_clusters<Kernel, kPlanes, 1, kStagesOfFew, 2, 1>(form, tasks, queue);
  }
  if (form.n == 2) return launch_batch_clusters<Kernel, kPlanes, 2, 2, 2, 1>(form, tasks, queue);
  if (form.n == 4) return launch_batch_clusters<Kernel, kPlanes, 4, 2, 1, 2>(form, tasks, queue);
  launch_batch_clusters<Kernel, kPlanes, 8, 2, 1, 4>(form, tasks, queue);
}
// kStagesOfFew: of the ring where there are 8 columns.
template <template <class> class Kernel, int kStagesOfFew>
void launch_batch(const BatchForm& form, BatchTasks& tasks, const Queue& queue) {
  form.planes == 2 ? launch_batch_planes<Kernel, 2, kStagesOfFew>(form, tasks, queue)
                   : launch_batch_planes<Kernel, 1, kStagesOfFew>(form, tasks, queue);
}

// The tasks are those of the linears, but for the formats.
void linear_batch_32(std::span<const LinearTask> linears, const BatchForm& form, BatchTasks& tasks, const Queue& queue);

}  // namespace assay::backend::cuda
