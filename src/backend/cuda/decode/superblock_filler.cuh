// What batch_wgmma.cu fills shared memory with, and which tiles its blocks take: superblocks of weights and columns of
// activations in rings of stages, by the copy engine, and what must be converted by two warps; the tree's sums that
// have no room there go to the device's memory and back.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/cuda/tiles/wgmma_formats.cuh"
#include "backend/cuda/tiles/wgmma_tile.cuh"

namespace assay::backend::cuda::superblocks {

inline constexpr int kScalarThreads = 64;

// The formats of a kernel's matrices: one, or two that go together (as the files that mix them have them in one
// product).
template <class A, class B = A>
struct Formats {
  using First = A;
  using Second = B;
  static constexpr bool kMixed = !std::is_same_v<A, B>, kHasMin = A::kHasMin || B::kHasMin;
  static constexpr int kStageBytes = std::max(A::kStageBytes, B::kStageBytes);
};

// A kernel: its formats, planes, columns of a tile; single: no chunk has more than one superblock (rows of at most
// 2,048); by_expert: its tiles are those of MmaTasks::experts, none of them split.
template <class Formats, int planes, int columns, bool single, bool by_expert = false>
struct Kind {
  using F = Formats;
  static constexpr int kPlanes = planes, kColumns = columns, kTokens = columns / planes;
  static constexpr bool kSingle = single, kByExpert = by_expert;
  static constexpr int kHalves =
      columns / 64;  // of a tile: 64 columns, which are both planes of 32 tokens, or the one of 64
  __host__ __device__ static constexpr int column_of(int token, int plane) {
    return planes == 1 ? token : token / 32 * 64 + plane * 32 + token % 32;
  }
  __host__ __device__ static constexpr int plane_of(int column) { return planes == 1 ? 0 : column / 32 % 2; }
  __host__ __device__ static constexpr int token_of(int column) {
    return planes == 1 ? column : column / 64 * 32 + column % 32;
  }
  static constexpr int kBoxTokens = planes == 1 ? kTokens : 32;  // neighbouring columns are of so many tokens
};

// How much of each is in shared memory: superblocks' columns, rows and scalars, and levels of the tree. The levels are
// the sums of one chunk (not where no chunk has a second superblock), of two, of four.
struct Room {
  int columns, rows, scalars, near;
};
template <class Kind>
struct Layout : Kind {
  using F = typename Kind::F;
  using Kind::kPlanes, Kind::kColumns, Kind::kSingle;
  static constexpr int kPanelBytes = kColumns * 128,
                       kStageColumnsBytes = 2 * kPanelBytes;  // 128 weights of every column side by side
  static constexpr int kSumsBytes =
      F::kHasMin ? kColumns * 32 : kTileRows * 4;  // sums of activations, or scales of rows
  static constexpr int kScalarBytes = kSumsBytes + kColumns * 4;
  static constexpr int kLevels = kSingle ? 2 : 3;
  static constexpr int kLevelFloats = kTileRows * kColumns / kPlanes,
                       kShareBytes = 2 * kLevelFloats;  // a group has half of the outputs
  static constexpr int bytes(const Room& room) {
    return room.columns * kStageColumnsBytes + room.rows * F::kStageBytes + room.near * kLevelFloats * 4 +
           room.scalars * kScalarBytes + 2 * (room.columns + room.rows + room.scalars + 1) * 8;
  }
  static constexpr bool fits(const Room& room) { return bytes(room) <= 227 * 1024; }
  // The more of the tree is near the better; two stages of columns are enough for that, and one of rows, which are free
  // half of the time.
  static constexpr Room choose() {
    for (const Room& room : {Room{3, 2, 3, kLevels}, Room{2, 2, 2, kLevels}, Room{2, 1, 2, 2}}) {
      if (fits(room)) return room;
    }
    return {3, 2, 3, 1};
  }
  static constexpr Room kRoom = choose();
  // Rows of so many superblocks are served: sums that leave shared memory come back at fixed chunks, so no chunk may be
  // left out.
  static constexpr bool serves(int n_blocks) {
    return !kSingle || n_blocks == 8 || (n_blocks < 8 && kRoom.near == kLevels);
  }
  static constexpr int kRows = kRoom.columns * kStageColumnsBytes;  // after the columns
  static constexpr int kWaiting = kRows + kRoom.rows * F::kStageBytes;
  static constexpr int kScalars = kWaiting + kRoom.near * kLevelFloats * 4;
  static constexpr int kBarriers = kScalars + kRoom.scalars * kScalarBytes;
  static constexpr int kBytes = bytes(kRoom);
  static_assert(F::kStageBytes % 1024 == 0 && kShareBytes <= kStageColumnsBytes && fits(kRoom));
  // Whether whole tiles leave by way of level 0 and the copy engine; of two planes and longer rows that costs 1 %.
  static constexpr bool kByCopies = kPlanes == 1 || kSingle;
  static constexpr bool is_near(int level) { return level < kRoom.near; }
};

// What is alike for all threads.
template <class Kind>
struct Shared {
  using L = Layout<Kind>;
  using F = typename Kind::F;
  static constexpr Room kRoom = L::kRoom;
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
  __device__ float4* level(int i) const {
    return reinterpret_cast<float4*>(memory + L::kWaiting) + i * (L::kLevelFloats / 4);
  }
  // Barriers in pairs: a stage is full, a stage is free.
  __device__ uint32_t barrier(int i) const { return base + static_cast<uint32_t>(L::kBarriers + 16 * i); }
  __device__ uint32_t columns_full(int stage) const { return barrier(stage); }
  __device__ uint32_t rows_full(int stage) const { return barrier(kRoom.columns + stage); }
  __device__ uint32_t scalars_full(int stage) const { return barrier(kRoom.columns + kRoom.rows + stage); }
  __device__ static uint32_t free_of(uint32_t full) { return full + 8; }
  // The sums of a level that is not near have arrived in the device's memory: the last level, or the one before.
  __device__ uint32_t far_done(int level) const {
    return barrier(kRoom.columns + kRoom.rows + kRoom.scalars) + (level + 1 == L::kLevels ? 0 : 8);
  }

  __device__ void make_barriers() const {
    make_barrier(far_done(L::kLevels - 1), 2);  // the groups
    make_barrier(far_done(L::kLevels - 2), 2);
    constexpr int kByCopies = kRoom.columns + kRoom.rows;
    for (int i = 0; i < kByCopies + kRoom.scalars; ++i) {
      make_barrier(barrier(i), i < kByCopies ? 1 : kScalarThreads);
      make_barrier(free_of(barrier(i)), 8);  // the multiplying warps
    }
    barriers_made();
  }
};

// The walk over tiles: block b of threads takes items b, b + grid, ... The first n_split tiles are split into n_parts
// parts of 8 / n_parts chunks, an item each; the others are whole.
struct Walk {
  int32_t n_split = 0, n_parts = 1, n_items = 0;
  uint32_t second = 0;      // bit i: task i is of the second format
  float4* nodes = nullptr;  // of every part of the split tiles: its sums
  uint32_t* arrived =
      nullptr;  // of every split tile: parts whose sums are there, then those whose blocks know it; 0 between kernels
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

template <class Kind>
__device__ int items_of(const MmaTasks& tasks, const Walk& walk) {
  return Kind::kByExpert ? tiles_of<true>(tasks) : walk.n_items;
}
template <class Kind>
__device__ TilePlace place_of(const MmaTasks& tasks, const Item& item) {
  return tile_at<Kind::kPlanes, Kind::kColumns, Kind::kByExpert>(tasks, item.tile);
}

// Where a group's sums of a level that is not near wait in the device's memory.
template <class L>
__device__ float4* far_share(float4* scratch, int level, int group) {
  return scratch + blockIdx.x * (kHopperScratchBytes / sizeof(float4)) +
         (L::kLevels - 1 - level) * (L::kLevelFloats / 4) + group * (L::kShareBytes / 16);
}

// The warps that fill the stages: one thread starts the copies of the columns, one those of the rows; two warps bring
// what must be converted.
template <class Kind>
struct Filler {
  using L = Layout<Kind>;
  using F = typename Kind::F;
  static constexpr int kPlanes = Kind::kPlanes, kColumns = Kind::kColumns;
  const MmaTasks& tasks;
  const Walk& walk;
  const GroupMaps& maps;
  const Shared<Kind> s;
  float4* scratch;

  template <class Fill>
  __device__ void for_each_superblock(uint32_t first_barrier, int n_stages, Fill fill) const {
    Ring ring;
    const int n_items = items_of<Kind>(tasks, walk);
    for (int i = static_cast<int>(blockIdx.x); i < n_items; i += static_cast<int>(gridDim.x)) {
      const Item item(walk, i);
      const TilePlace at = place_of<Kind>(tasks, item);
      const int end = (item.first_chunk + item.n_chunks) * tasks.n_blocks / 8;
      for (int block = item.first_chunk * tasks.n_blocks / 8; block < end; ++block) {
        const uint32_t full = first_barrier + static_cast<uint32_t>(16 * ring.stage);
        wait_phase(s.free_of(full), ring.phase ^ 1);
        fill(at, block, ring.stage, full);
        ring.next(n_stages);
      }
    }
  }
  // Between the superblocks, when the tree asks for them, the sums that wait in the device's memory take stages, too.
  __device__ void fill_columns() const {
    Ring ring;
    uint32_t two_phase = 0, four_phase = 0;
    const int n_items = items_of<Kind>(tasks, walk);
    for (int i = static_cast<int>(blockIdx.x); i < n_items; i += static_cast<int>(gridDim.x)) {
      const Item item(walk, i);
      const TilePlace at = place_of<Kind>(tasks, item);
      int block = item.first_chunk * tasks.n_blocks / 8;
      for (int chunk = 0; chunk < item.n_chunks; ++chunk) {
        for (const int end = (item.first_chunk + chunk + 1) * tasks.n_blocks / 8; block < end; ++block)
          fill_columns_of(at, block, ring);
        if (chunk % 4 == 3 && !L::is_near(L::kLevels - 2)) bring_back(L::kLevels - 2, ring, two_phase);
        if (chunk == 7 && !L::is_near(L::kLevels - 1)) bring_back(L::kLevels - 1, ring, four_phase);
      }
    }
  }
  __device__ uint32_t free_columns(const Ring& ring) const {
    const uint32_t full = s.columns_full(ring.stage);
    wait_phase(s.free_of(full), ring.phase ^ 1);
    return full;
  }
  __device__ void fill_columns_of(const TilePlace& at, int block, Ring& ring) const {
    const uint32_t full = free_columns(ring);
    arrive_with_bytes(full, L::kStageColumnsBytes);
#pragma unroll
    for (int panel = 0; panel < 2; ++panel) {
#pragma unroll
      for (int i = 0; i < kColumns / Kind::kBoxTokens; ++i) {
        const int plane = i % kPlanes, token = i / kPlanes * Kind::kBoxTokens;
        copy_box(
            s.columns(ring.stage) + static_cast<uint32_t>(panel * L::kPanelBytes + Kind::column_of(token, plane) * 128),
            maps.columns[plane], block * 256 + 128 * panel, at.token_0 + token, full);
      }
    }
    ring.next(L::kRoom.columns);
  }
  __device__ void bring_back(int level, Ring& ring, uint32_t& phase) const {
    wait_phase(s.far_done(level), phase);
    phase ^= 1;
    show_to_copies();
    for (int group = 0; group < 2; ++group) {
      const uint32_t full = free_columns(ring);
      arrive_with_bytes(full, L::kShareBytes);
      copy_bytes(s.columns(ring.stage), far_share<L>(scratch, level, group), L::kShareBytes, full);
      ring.next(L::kRoom.columns);
    }
  }
  __device__ void fill_rows() const {
    for_each_superblock(s.rows_full(0), L::kRoom.rows, [&](const TilePlace& at, int block, int stage, uint32_t full) {
      is_second(at) ? fill_rows_of<typename F::Second>(at, block, stage, full)
                    : fill_rows_of<typename F::First>(at, block, stage, full);
    });
  }
  __device__ bool is_second(const TilePlace& at) const { return F::kMixed && (walk.second >> at.task & 1) != 0; }
  template <class Format>
  __device__ void fill_rows_of(const TilePlace& at, int block, int stage, uint32_t full) const {
    arrive_with_bytes(full, Format::kStageBytes);
#pragma unroll
    for (int i = 0; i < Format::kParts; ++i) {
      copy_box(s.rows(stage) + static_cast<uint32_t>(Format::part(i).at), maps.rows[at.task][i],
               block * Format::part(i).bytes, at.row_0, full);
    }
  }
  // Sums of the activations for the formats with minima, for the others scales of the rows.
  __device__ void fill_scalars(int t) const {
    for_each_superblock(
        s.scalars_full(0), L::kRoom.scalars, [&](const TilePlace& at, int block, int stage, uint32_t full) {
          const bool has_min = is_second(at) ? F::Second::kHasMin : F::First::kHasMin;
#pragma unroll
          for (int column = t; column < kColumns; column += kScalarThreads) {
            const int token = Kind::token_of(column), plane = Kind::plane_of(column);
            const int64_t i = int64_t{min(at.token_0 + token, tasks.n_tokens - 1)} * tasks.n_blocks + block;
            if (plane == 0) s.token_d(stage)[token] = tasks.x.d[i];
            if (!has_min) continue;
            const auto* from = reinterpret_cast<const uint4*>((plane == 0 ? tasks.x.q_sums : tasks.x.l_sums) + i * 16);
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
              s.row_d(stage)[i] =
                  low_half(reinterpret_cast<const uint16_t*>(task.w.base[3])[row * tasks.n_blocks + block]);
            }
          }
          show_to_tensor_cores();
          arrive(full);
        });
  }
  __device__ void run(int t) const {
    if (!Kind::kByExpert && t == 32) return fill_rows();  // weights are there before the kernel ahead has ended
    wait_for_previous();
    if (Kind::kByExpert && t == 32) return fill_rows();
    if (t == 0) fill_columns();
    if (t >= kGroupThreads - kScalarThreads) fill_scalars(t - (kGroupThreads - kScalarThreads));
  }
};

}  // namespace assay::backend::cuda::superblocks
