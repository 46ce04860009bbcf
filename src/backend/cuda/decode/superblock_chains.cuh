// The sums of a tile of superblock_multiplier.cuh as the contract's tree joins them: chains of a chunk of K in
// registers, levels of two and four chunks that wait in shared memory or, where that has no room, in the device's, and
// parts of a tile that several blocks of threads join.
//
//   chunk 0 .. 7  --- end_chunk ------------------>  levels 0 to 2: shared memory (near) or the device's (far)
//   a whole tile  --- write, write_by_copies ----->  y; the latter by way of level 0
//   a part of one --- hand_over: nodes [parts] --->  join_parts, by all blocks of threads: y
#pragma once

#include "backend/cuda/decode/superblock_filler.cuh"

namespace assay::backend::cuda::superblocks {

__device__ inline void meet_multipliers() { asm volatile("bar.sync 1, %0;" : : "n"(2 * kGroupThreads) : "memory"); }

template <class Kind>
struct TreeChains : TileChains<Kind::kTokens / 8> {
  using Chains = TileChains<Kind::kTokens / 8>;
  using Chains::tasks, Chains::t, Chains::kShare, Chains::group, Chains::clear, Chains::put, Chains::add;
  using L = Layout<Kind>;
  static constexpr bool kSingle = Kind::kSingle;
  static constexpr int kOutputs = -1;
  static constexpr bool kHasFar = L::kRoom.near < L::kLevels;
  const Walk& walk;
  const Shared<Kind> s;
  float4* const scratch;
  bool is_new = true;  // the chunk has had no superblock yet
  // What is on its way to the device's memory from the place of level 0: the sums of another level, outputs, else 0,
  // which is always near.
  int leaving = 0;

  __device__ TreeChains(const MmaTasks& all, const Walk& items, const Shared<Kind>& shared, int thread, float4* far)
      : Chains(all, thread), walk(items), s(shared), scratch(far) {}

  // The sums of level kLevel begin to wait, or are added.
  template <int kLevel>
  __device__ void keep() {
    if constexpr (L::is_near(kLevel)) {
      keep_near(kLevel);
    } else {  // by way of a level that is near and empty now
      keep_near(0);
      show_to_tensor_cores();
      meet_group();
      const uint32_t share = shared_address(s.level(0) + group() * kShare);
      if (t % kGroupThreads == 0) store_bytes(far_share<L>(scratch, kLevel, group()), share, L::kShareBytes);
      leaving = kLevel;
    }
  }
  __device__ void keep_near(int level) {
    if ((kHasFar || L::kByCopies) && leaving != 0) {  // until the copy engine has taken what left
      if (t % kGroupThreads == 0) {
        wait_stores();
        if (kHasFar && leaving != kOutputs) arrive(s.far_done(leaving));
      }
      meet_group();
      leaving = 0;
    }
    put(s.level(level));
  }
  template <int kLevel>
  __device__ void add_kept(Ring& columns) {
    if constexpr (L::is_near(kLevel)) {
      add(s.level(kLevel));
    } else {
      add_far(columns);
    }
  }
  __device__ void free_columns(const Ring& columns) const {
    if (t % 32 == 0) arrive(s.free_of(s.columns_full(columns.stage)));
  }
  __device__ void add_far(Ring& columns) {
#pragma unroll 1
    for (int share = 0; share < 2; ++share) {
      const uint32_t full = s.columns_full(columns.stage);
      wait_phase(full, columns.phase);
      if (share == group()) {
        add(reinterpret_cast<const float4*>(s.memory + columns.stage * L::kStageColumnsBytes) - group() * kShare);
      }
      __syncwarp();
      free_columns(columns);
      columns.next(L::kRoom.columns);
    }
  }
  __device__ void meet_group() const {
    asm volatile("bar.sync %0, %1;" : : "r"(4 + group()), "n"(kGroupThreads) : "memory");
  }

  // Chunk `chunk` of the item's n has ended. The last leaves the item's sum in the chains; otherwise the next chunk
  // writes over them.
  __device__ void end_chunk(int chunk, int n, Ring& columns) {
    constexpr int kFour = L::kLevels - 1, kTwo = kFour - 1;
    static_assert(!kSingle);
    if (is_new) {
      clear();
      asm volatile("");  // a branch, for it is rare
    }
    is_new = true;
    if (chunk % 2 == 0) {
      if (n > 1) keep<0>();
      return;
    }
    add_kept<0>(columns);
    if (chunk % 4 == 1) {
      if (n > 2) keep<kTwo>();
      return;
    }
    add_kept<kTwo>(columns);
    if (chunk == 7) add_kept<kFour>(columns);
    if (chunk + 1 != n) keep<kFour>();
  }
  // The same where no chunk has a second superblock: chunk `chunk` has had its only one. filled: a bit for each chunk
  // of the item that has any. The others are zeros, and x + 0 is x but for a zero's sign (end_singles), so nothing is
  // kept or added for them.
  __device__ void end_single(int chunk, uint32_t filled, Ring& columns) {
    static_assert(kSingle);
    const int two = chunk & ~1;
    is_new = true;
    if (chunk == two && (filled >> chunk & 2) != 0) {
      is_new = false;  // the next superblock's term is added
      return;
    }
    if ((chunk & 2) == 0) {
      if ((filled >> two & 0xC) != 0) return keep<0>();
    } else if ((filled << 2 >> two & 3) != 0) {
      add_kept<0>(columns);
    }
    if (chunk < 4) {
      if (filled >> 4 != 0) keep<1>();
    } else if ((filled & 15) != 0) {
      add_kept<1>(columns);
    }
  }
  // The item's sum is in the chains, unless it had no superblock. No sum with a chunk of zeros among its terms is -0.
  __device__ void end_singles(bool had_any) {
    if (!had_any) clear();
    if (tasks.n_blocks == 8) return;
#pragma unroll
    for (float& sum : this->chain) sum = sum + 0.0f;
  }
  // The outputs, by way of level 0, which nobody needs until the next tile's first sums.
  __device__ void write_by_copies(const TilePlace& at, const CUtensorMap& map) {
    const uint32_t share = shared_address(s.level(0)) + static_cast<uint32_t>(group() * L::kShareBytes);
    meet_group();
    this->put_boxes(share);
    show_to_tensor_cores();
    meet_group();
    if (t % kGroupThreads == 0) this->store_boxes(at, map, share);
    leaving = kOutputs;
  }
  // The sums of a part of a tile, for all the parts' blocks of threads.
  static constexpr int kVectors = L::kLevelFloats / 4;
  __device__ float4* nodes_of(const Item& item) const {
    return walk.nodes + static_cast<int64_t>(item.tile) * walk.n_parts * kVectors;
  }
  __device__ void hand_over(const Item& item) const {
    put(nodes_of(item) + item.first_chunk / item.n_chunks * kVectors);
    meet_multipliers();
    if (t != 0) return;
    __threadfence();
    atomicAdd(walk.arrived + item.tile, 1u);
  }
  // When all parts' sums are there: the block's share of the tile's outputs. All blocks of the grid run at once, so
  // none waits for one that does not run.
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
    const TilePlace at = place_of<Kind>(tasks, item);
    if (walk.n_parts == 2) join<2>(item, at, from);
    if (walk.n_parts == 4) join<4>(item, at, from);
    if (walk.n_parts == 8) join<8>(item, at, from);
  }
  template <int kParts>
  __device__ void join(const Item& item, const TilePlace& at, const float4* from) const {
    constexpr int kOfPart = kVectors / kParts;
    const int begin = item.first_chunk / item.n_chunks * kOfPart;
    const MmaTask& task = tasks.task[at.task];
    for (int i = begin + t; i < begin + kOfPart; i += 2 * kGroupThreads) {
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
      const int thread = i % kGroupThreads, in_group = i % kShare;
      const int row = at.row_0 + i / kShare * 64 + thread / 32 * 16 + thread % 32 / 4;
      const int token = at.token_0 + in_group / kGroupThreads * 8 + 2 * (thread % 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int of_row = row + e / 2 * 8, of_token = token + e % 2;
        if (of_row >= task.n_rows || of_token >= tasks.n_tokens) continue;
        task.y[int64_t{of_token} * task.n_rows + of_row] = task.bias == nullptr ? y[e] : y[e] + task.bias[of_row];
      }
    }
  }
};

}  // namespace assay::backend::cuda::superblocks
