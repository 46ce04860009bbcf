// What the kernels of Hopper's group products share (batch_wgmma.cu, wgmma_32.cu): blocks of 12 warps stay on their
// multiprocessor and take tile after tile of 128 rows x 128 columns, a column being a plane of a token's activations.
// Four warps fill shared memory, two groups of four multiply 64 rows each; a thread has the chains of its outputs in
// registers, and sums of one, two and four chunks wait beside them.
//
//   warps 0 .. 3     fill: weights and columns of the stages to come, by the copy engine, into rings in shared memory
//   warps 4 .. 7     multiply rows  0 .. 63  of the tile:  fragments of weights in registers, columns in shared memory --> wgmma: integers
//   warps 8 .. 11    multiply rows 64 .. 127, the same     --> float terms --> chains in registers --> the tree --> y
//   between them     two barriers a stage: the copies have arrived; both groups have read it
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/peers/copy_map.cuh"
#include "backend/cuda/tiles/mma_tile.cuh"
#include "backend/cuda/tiles/wgmma_steps.cuh"

namespace assay::backend::cuda {

inline constexpr int kGroupThreads = 128, kGroupsThreads = 3 * kGroupThreads;

// The matrices as the copy engine sees them: parts of each task's weights, planes of the activations.
struct GroupMaps {
  CUtensorMap rows[kLinearsMax][3], columns[2], outputs[kLinearsMax];
  bool has_outputs = false;  // else each thread writes its own
};

struct TilePlace {
  int task, row_0, token_0;
};
template <int kPlanes, int kColumns = kTileColumns, bool kByExpert = false>
__device__ TilePlace tile_at(const MmaTasks& tasks, int tile) {
  if constexpr (kByExpert) {
    const ExpertTiles& e = tasks.experts;
    const ExpertTile own = e.tiles[tile / e.n_row_tiles];
    return {0, own.expert * e.rows_per_expert + e.first_row + tile % e.n_row_tiles * kTileRows, own.begin};
  }
  int i = 0;
  while (i + 1 < tasks.n && tile >= tasks.task[i + 1].first_tile) ++i;
  const int at = tile - tasks.task[i].first_tile;
  return {i, at / tasks.n_token_tiles * kTileRows, at % tasks.n_token_tiles * (kColumns / kPlanes)};
}

// How many there are; by experts the device alone knows.
template <bool kByExpert>
__device__ int tiles_of(const MmaTasks& tasks) {
  return kByExpert ? *tasks.experts.n_tiles * tasks.experts.n_row_tiles : tasks.n_tiles;
}

__device__ inline void store_word(uint32_t shared, float x) {
  asm volatile("st.shared.f32 [%0], %1;" : : "r"(shared), "f"(x) : "memory");
}

// The chains of a thread's outputs, element e % 4 of column tile e / 4, whose sums wait for others or end in y.
template <int kN>
struct TileChains {
  const MmaTasks& tasks;
  const int t;  // of the two groups' threads
  float chain[4 * kN];

  __device__ TileChains(const MmaTasks& all, int thread) : tasks(all), t(thread) {}
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 4 * kN; ++i) chain[i] = 0.0f;
  }
  // Of float4s: a group's share of a node lies side by side.
  static constexpr int kShare = kN * kGroupThreads;
  __device__ int group() const { return t / kGroupThreads; }
  __device__ int place() const { return group() * kShare + t % kGroupThreads; }
  __device__ void put(float4* to) const {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      to[place() + i * kGroupThreads] = {chain[4 * i], chain[4 * i + 1], chain[4 * i + 2], chain[4 * i + 3]};
    }
  }
  __device__ void add(const float4* from) {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      const float4 v = from[place() + i * kGroupThreads];
      chain[4 * i] = v.x + chain[4 * i], chain[4 * i + 1] = v.y + chain[4 * i + 1];
      chain[4 * i + 2] = v.z + chain[4 * i + 2], chain[4 * i + 3] = v.w + chain[4 * i + 3];
    }
  }
  // The outputs of a group's 64 rows as two boxes of 32 rows for the copy engine: 128 bytes of each token, whose pieces
  // of 16 are exchanged by the token's number, so that a warp's words are in 32 banks.
  static constexpr uint32_t kBoxBytes = kN * 8 * 128;
  __device__ void put_boxes(uint32_t to) const {
    const auto lane = static_cast<uint32_t>(t % 32), warp = static_cast<uint32_t>(t / 32 % 4);
    to += warp / 2 * kBoxBytes + lane / 4 % 4 * 4;
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t token = 2 * (lane % 4) + e % 2, piece = warp % 2 * 4 + e / 2 * 2 + lane / 16,
                     place = to + token * 128 + 16 * (piece ^ token);
#pragma unroll
      for (uint32_t n = 0; n < kN; ++n) store_word(place + n * 1024, chain[4 * n + e]);
    }
  }
  __device__ void store_boxes(const TilePlace& at, const CUtensorMap& map, uint32_t from) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      store_box(map, 4 * (at.row_0 + 64 * group() + 32 * i), at.token_0, from + static_cast<uint32_t>(i) * kBoxBytes);
  }
  __device__ void write(const TilePlace& at) {
    const int row = at.row_0 + t / 32 * 16 + t % 32 / 4, token = at.token_0 + 2 * (t % 4);
    const MmaTask& task = tasks.task[at.task];
    const int n_rows = task.n_rows - row, n_tokens = tasks.n_tokens - token;
    const float* b = task.bias;
    const float bias[2] = {b != nullptr && n_rows > 0 ? b[row] : 0.0f, b != nullptr && n_rows > 8 ? b[row + 8] : 0.0f};
    int64_t step = task.n_rows;
    asm volatile("" : "+l"(step));  // no address is worth a register while weights are multiplied
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
  // Of a tile by experts: each output to its pair.
  __device__ void write_pairs(int tile) {
    const ExpertTiles& e = tasks.experts;
    const ExpertTile own = e.tiles[tile / e.n_row_tiles];
    const int row = tile % e.n_row_tiles * kTileRows + t / 32 * 16 + t % 32 / 4, n_rows = e.d_out - row;
    const int first = own.begin + 2 * (t % 4), n_tokens = own.end - first;
    const float* b = tasks.task[0].bias;
    if (b != nullptr) b += own.expert * e.rows_per_expert + e.first_row + row;
    const float bias[2] = {b != nullptr && n_rows > 0 ? b[0] : 0.0f, b != nullptr && n_rows > 8 ? b[8] : 0.0f};
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        if (8 * n + odd >= n_tokens) continue;
        float* y = tasks.task[0].y + int64_t{e.pairs[first + 8 * n + odd]} * e.d_out + row;
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const float v = chain[4 * n + 2 * side + odd];
          if (8 * side < n_rows) y[8 * side] = b == nullptr ? v : v + bias[side];
        }
      }
    }
  }
};

// Chains with the tree over chunks: one, two and four are where sums of so many chunks wait.
template <int kPlanes>
struct ChunkTree : TileChains<16 / kPlanes> {
  static constexpr int kN = 16 / kPlanes;  // column tiles of outputs
  static constexpr int kWaitingFloats = kTileRows * kTileColumns / kPlanes;
  float4 *const one, *const two, *const four;

  __device__ ChunkTree(const MmaTasks& all, int thread, float4* of_one, float4* of_two, float4* of_four)
      : TileChains<kN>(all, thread), one(of_one), two(of_two), four(of_four) {}
  __device__ static int begin_of(int chunk, const MmaTasks& all) { return chunk * all.n_blocks / 8; }
  __device__ int chunk_begin(int i) const { return begin_of(i, this->tasks); }

  // write: of the whole tile's outputs.
  template <class Write>
  __device__ void end_chunk(int chunk, Write&& write) {
    if (chunk % 2 == 0) {
      this->put(one);
    } else {
      this->add(one);
      if (chunk % 4 == 1) {
        this->put(two);
      } else {
        this->add(two);
        if (chunk == 3) this->put(four);
        if (chunk == 7) {
          this->add(four);
          write();
        }
      }
    }
    this->clear();
  }
};

// Maps of task i's weights, Format's parts in boxes of part(i).bytes; of the activations in boxes of column_bytes x
// box_tokens; of all tasks.
template <class Format>
bool make_row_maps(const MmaTasks& tasks, int i, const Hopper& hopper, GroupMaps& maps) {
  bool made = true;
  for (int p = 0; p < Format::kParts; ++p) {
    const auto part = Format::part(p);
    made &= make_map(hopper, tasks.task[i].w.base[part.part], int64_t{tasks.n_blocks} * Format::block_bytes(p),
                     tasks.task[i].n_rows, part.bytes, kTileRows, maps.rows[i][p]);
  }
  return made;
}
inline bool make_column_maps(const MmaTasks& tasks, const Hopper& hopper, int column_bytes, int box_tokens,
                             GroupMaps& maps) {
  bool made = true;
  for (int plane = 0; plane < tasks.x.planes; ++plane) {
    made &= make_map(hopper, plane == 0 ? tasks.x.q : tasks.x.l, tasks.x.k, tasks.n_tokens, column_bytes, box_tokens,
                     maps.columns[plane]);
  }
  return made;
}
// Whether outputs have no bias and lie in whole pieces of 16 bytes, as the copy engine takes them.
inline bool are_outputs_in_pieces(const MmaTasks& tasks) {
  return std::all_of(tasks.task, tasks.task + tasks.n, [](const MmaTask& task) {
    return task.bias == nullptr && task.n_rows % 4 == 0 && reinterpret_cast<uintptr_t>(task.y) % 16 == 0;
  });
}
template <int kTokens>
bool make_output_maps(const MmaTasks& tasks, const Hopper& hopper, GroupMaps& maps) {
  bool made = true;
  for (int i = 0; i < tasks.n; ++i) {
    const MmaTask& task = tasks.task[i];
    made &= make_map(hopper, task.y, int64_t{task.n_rows} * 4, tasks.n_tokens, 128, kTokens, maps.outputs[i]);
  }
  return made;
}
template <class Format>
bool make_group_maps(const MmaTasks& tasks, const Hopper& hopper, int column_bytes, int box_tokens, GroupMaps& maps) {
  bool made = make_column_maps(tasks, hopper, column_bytes, box_tokens, maps);
  for (int i = 0; i < tasks.n; ++i) made &= make_row_maps<Format>(tasks, i, hopper, maps);
  return made;
}

// Starts a kernel that takes all tiles by turns.
template <bool kByExpert, class Kernel>
void launch_groups(Kernel kernel, MmaTasks& tasks, const GroupMaps& maps, size_t shared_bytes, const Hopper& hopper,
                   const Queue& queue) {
  require(allow_shared(kernel, shared_bytes), "shared memory");
  if (!kByExpert) number_tiles(tasks);
  const int n_blocks = kByExpert ? hopper.n_processors : std::min(tasks.n_tiles, hopper.n_processors);
  launch(queue, kernel, dim3(static_cast<unsigned>(n_blocks)), kGroupsThreads, shared_bytes, tasks, maps,
         reinterpret_cast<float4*>(hopper.scratch));
}

}  // namespace assay::backend::cuda
