// Products of superblock formats on Hopper (sm_90a), in tiles and groups of warps as wgmma_tile.cuh has them, of 64 or
// 128 columns: the kernel of batch_wgmma.cu and expert_wgmma.cu. A group multiplies the high digits of a superblock's
// weights, shifts by some bits, multiplies the low digits, so that one integer an output and superblock comes out of
// the tensor cores. Minima times sums of activations are a product of half-precision integers (at most 63 and 2,032, so
// exact). Of 128 columns one half is multiplied while the other's sums are shifted, or become terms; or the groups take
// turns. Floats follow the contract, one chain an output in a register.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/cuda/decode/superblock_filler.cuh"

namespace assay::backend::cuda::superblocks {

// Barriers 2 and 3: the turns of group 0 and 1.
__device__ inline void take_turn(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(2 + group), "n"(2 * kGroupThreads) : "memory");
}
__device__ inline void give_turn(int group) {
  asm volatile("bar.arrive %0, %1;" ::"r"(3 - group), "n"(2 * kGroupThreads) : "memory");
}
__device__ inline void meet_multipliers() { asm volatile("bar.sync 1, %0;" ::"n"(2 * kGroupThreads) : "memory"); }
template <class Kind>
struct Multiplier : TileChains<Kind::kTokens / 8> {
  using Chains = TileChains<Kind::kTokens / 8>;
  using Chains::tasks, Chains::t, Chains::chain, Chains::kShare, Chains::group, Chains::clear, Chains::put, Chains::add,
      Chains::write;
  using L = Layout<Kind>;
  using F = typename Kind::F;
  static constexpr int kPlanes = Kind::kPlanes, kColumns = Kind::kColumns;
  static constexpr bool kSingle = Kind::kSingle;
  static constexpr int kHalves = Kind::kHalves;
  // All columns are multiplied at once, the high digits by one group at a time, so that terms of one group fall into
  // products of the other. Fewer instructions than by halves; which is faster was measured.
  static constexpr bool kInTurns = kPlanes == 1 && kHalves == 2 && F::kHasMin && !F::kMixed;
  const Walk& walk;
  const GroupMaps& maps;
  const Shared<Kind> s;
  float4* const scratch;
  int32_t sum[kColumns / 2];
  float of_minima[kHalves][32];  // minima times sums, of 64 columns each
  bool is_new = true;            // the chunk has had no superblock yet
  // What is on its way to the device's memory from the place of level 0: the sums of another level, outputs, else 0,
  // which is always near.
  int leaving = 0;
  static constexpr int kOutputs = -1;
  static constexpr bool kHasFar = L::kRoom.near < L::kLevels;

  __device__ Multiplier(const MmaTasks& all, const Walk& items, const GroupMaps& of_all, const Shared<Kind>& shared,
                        int thread, float4* far)
      : Chains(all, thread), walk(items), maps(of_all), s(shared), scratch(far) {}

  __device__ int chunk_begin(int i) const { return i * tasks.n_blocks / 8; }

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
    asm volatile("bar.sync %0, %1;" ::"r"(4 + group()), "n"(kGroupThreads) : "memory");
  }

  // Chunk `chunk` of the item's n has ended. The last leaves the item's sum in the chains; otherwise the next chunk
  // writes over them.
  __device__ void end_chunk(int chunk, int n, Ring& columns) {
    constexpr int kFour = L::kLevels - 1, kTwo = kFour - 1;
    if (is_new) {
      clear();
      asm volatile("");  // a branch, for it is rare
    }
    is_new = !kSingle || chunk % 2 != 0;  // else the next superblock's term is added
    if (chunk % 2 == 0) {
      if (!kSingle && n > 1) keep<0>();
      return;
    }
    if constexpr (!kSingle) add_kept<0>(columns);
    if (chunk % 4 == 1) {
      if (n > 2) keep<kTwo>();
      return;
    }
    add_kept<kTwo>(columns);
    if (chunk == 7) add_kept<kFour>(columns);
    if (chunk + 1 != n) keep<kFour>();
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
  __device__ static uint64_t columns_of(uint64_t stage, int weight, int half) {
    return later_columns(stage, static_cast<uint32_t>(weight / 128 * L::kPanelBytes + half * 64 * 128 + weight % 128));
  }
  template <class Format, int kHalf, bool kAccumulate>
  __device__ void multiply_high(const uint32_t (&a)[4], uint64_t stage, int weight) {
    const uint64_t b = columns_of(stage, weight, kHalf);
    if constexpr (kInTurns) {
      multiply_bytes_unsigned<kAccumulate>(sum, a, b);
    } else if constexpr (Format::kSigned) {
      multiply_half_signed<kAccumulate, 32 * kHalf>(sum, a, b);
    } else {
      multiply_half_unsigned<kAccumulate, 32 * kHalf>(sum, a, b);
    }
  }
  // Step i of four.
  template <class Format, int kHalf>
  __device__ void multiply_high_digits(const Fragments (&a)[8], int i, uint64_t from) {
    if (i == 0) {
      multiply_high<Format, kHalf, false>(a[0].high, from, Format::first(0));
    } else {
      multiply_high<Format, kHalf, true>(a[2 * i].high, from, Format::first(i));
    }
    multiply_high<Format, kHalf, true>(a[2 * i + 1].high, from, Format::second(i));
  }
  template <int kHalf>
  __device__ void multiply_low(const uint32_t (&a)[4], uint64_t stage, int weight) {
    const uint64_t b = columns_of(stage, weight, kHalf);
    if constexpr (kInTurns) {
      multiply_bytes_unsigned<true>(sum, a, b);
    } else {
      multiply_half_unsigned<true, 32 * kHalf>(sum, a, b);
    }
  }
  template <class Format>
  __device__ void multiply_minima(const Format& w, const Ring& scalars, int half) {
    const uint32_t sums = shared_address(s.sums(scalars.stage)) + static_cast<uint32_t>(half * 64 * 16);
    forget(of_minima[half]);
    multiply_halves_64(of_minima[half], w.minima, plain_columns(sums, kColumns * 16));
  }
  // So that nothing of the superblock before is kept in registers.
  template <class T, int n>
  __device__ static void forget(T (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        asm volatile("" : "=f"(x[i]));
      } else {
        asm volatile("" : "=r"(x[i]));
      }
    }
  }
  template <int kShift, int kHalf>
  __device__ void shift() {
#pragma unroll
    for (int i = 32 * kHalf; i < (kInTurns ? 64 : 32 * kHalf + 32); ++i)
      sum[i] = static_cast<int32_t>(static_cast<uint32_t>(sum[i]) << kShift);
  }

  // The low digits of half kHalf, in turns of all columns, onto the high ones, and before the last half's the minima of
  // the first.
  template <class Format, int kHalf>
  __device__ void multiply_low_digits(const Format& w, const Fragments (&a)[8], uint64_t from, const Ring& scalars) {
    constexpr bool kMinima = Format::kHasMin && (kInTurns || kHalf == kHalves - 1);
    shift<Format::kShift, kHalf>();
    begin_products();
    if constexpr (kMinima) {
      multiply_minima(w, scalars, 0);
      end_products();
      begin_products();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply_low<kHalf>(a[2 * i].low, from, Format::first(i));
      multiply_low<kHalf>(a[2 * i + 1].low, from, Format::second(i));
    }
    if constexpr (kMinima && kPlanes == 2 && kHalves == 2) multiply_minima(w, scalars, 1);
    end_products();
  }

  // A superblock. While the tensor cores have one half of the columns the other's sums are shifted, or become terms.
  template <class Format>
  __device__ void add_superblock(const Ring& rows, const Ring& columns, const Ring& scalars) {
    const uint32_t stage = s.rows(rows.stage), row = static_cast<uint32_t>(t / 32 * 16);
    const uint64_t from = swizzled_columns(s.columns(columns.stage));
    Format w;
    Fragments a[8];
    forget(sum);
    wait_phase(s.rows_full(rows.stage), rows.phase);
    w.read(stage, row);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w.unpack(stage, row, i, a[2 * i], a[2 * i + 1]);
      if (i == 0) {
        wait_phase(s.columns_full(columns.stage), columns.phase);
        if constexpr (kInTurns) take_turn(group());
      }
      begin_products();
      multiply_high_digits<Format, 0>(a, i, from);
      end_products();
    }
    if constexpr (kHalves == 2 && !kInTurns) {
      begin_products();
#pragma unroll
      for (int i = 0; i < 4; ++i) multiply_high_digits<Format, 1>(a, i, from);
      end_products();
    }
    if constexpr (Format::kHasMin) w.read_floats(stage, row);
    __syncwarp();
    if (t % 32 == 0) arrive(s.free_of(s.rows_full(rows.stage)));
    wait_phase(s.scalars_full(scalars.stage), scalars.phase);
    if constexpr (!Format::kHasMin) {
      const float* d = s.row_d(scalars.stage) + t / 32 * 16 + t % 32 / 4;
      w.d[0] = {d[0], 0.0f}, w.d[1] = {d[8], 0.0f};
    }
    if constexpr (kInTurns) {
      wait_products<1>();
      give_turn(group());
      wait_products<0>();
    } else {
      wait_products<kHalves - 1>();
    }
    multiply_low_digits<Format, 0>(w, a, from, scalars);
    if constexpr (kHalves == 2) {
      if constexpr (!kInTurns) {
        wait_products<1>();
        multiply_low_digits<Format, 1>(w, a, from, scalars);
      }
      wait_products<kInTurns ? 0 : 1>();
      if constexpr (kInTurns) free_columns(columns);
      add_terms<0>(w, scalars);
      if constexpr (Format::kHasMin && kPlanes == 1) {
        begin_products();
        multiply_minima(w, scalars, 1);
        end_products();
      }
    }
    wait_products<0>();
    if constexpr (!kInTurns) free_columns(columns);
    add_terms<kHalves - 1>(w, scalars);
    is_new = false;
    __syncwarp();
    if (t % 32 == 0) arrive(s.free_of(s.scalars_full(scalars.stage)));
  }

  // The float terms of half kHalf, into the chains.
  template <int kHalf, class Format>
  __device__ void add_terms(const Format& w, const Ring& scalars) {
    is_new ? add_terms_of<kHalf, true>(w, scalars) : add_terms_of<kHalf, false>(w, scalars);
  }
  // kFirst: of a chunk.
  template <int kHalf, bool kFirst, class Format>
  __device__ void add_terms_of(const Format& w, const Ring& scalars) {
    constexpr int kTiles = 8 / kPlanes;  // of 8 tokens
    const float* token_d = s.token_d(scalars.stage) + 8 * kTiles * kHalf + 2 * (t % 4);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const float2 x_d = *reinterpret_cast<const float2*>(token_d + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 4 * n + e;
        float f = static_cast<float>(sum[32 * kHalf + i]), m = Format::kHasMin ? of_minima[kHalf][i] : 0.0f;
        if constexpr (kPlanes == 2) {
          f = num::fma(0x1p-7f, static_cast<float>(sum[32 * kHalf + 16 + i]), f);  // quant::join_planes
          if constexpr (Format::kHasMin) m = num::fma(0x1p-7f, of_minima[kHalf][16 + i], m);
        }
        const float term = quant::block_term(Format::kHasMin, w.d[e / 2], f, m), d = e % 2 == 0 ? x_d.x : x_d.y;
        float& c = chain[4 * kTiles * kHalf + i];
        if constexpr (kFirst) {
          c = num::fma(d, term, 0.0f);
        } else if constexpr (kSingle) {
          c = c + num::fma(d, term, 0.0f);  // a chain of one term, and its neighbour's
        } else {
          c = num::fma(d, term, c);
        }
      }
    }
  }

  __device__ void run() {
    wait_for_previous();
    Ring rows, columns, scalars;
    const int n_items = items_of<Kind>(tasks, walk);
    if (kInTurns && group() == 1) give_turn(1);
    for (int i = static_cast<int>(blockIdx.x); i < n_items; i += static_cast<int>(gridDim.x)) {
      const Item item(walk, i);
      const TilePlace at = place_of<Kind>(tasks, item);
      is_new = true;
      int chunk = 0, block = chunk_begin(item.first_chunk);
      for (const int end = chunk_begin(item.first_chunk + item.n_chunks); block < end; ++block) {
        for (; chunk_begin(item.first_chunk + chunk + 1) <= block; ++chunk) end_chunk(chunk, item.n_chunks, columns);
        if (F::kMixed && (walk.second >> at.task & 1) != 0) {
          add_superblock<typename F::Second>(rows, columns, scalars);
        } else {
          add_superblock<typename F::First>(rows, columns, scalars);
        }
        rows.next(L::kRoom.rows);
        columns.next(L::kRoom.columns);
        scalars.next(L::kRoom.scalars);
      }
      for (; chunk < item.n_chunks; ++chunk) end_chunk(chunk, item.n_chunks, columns);
      if constexpr (Kind::kByExpert) {
        this->write_pairs(item.tile);
      } else if (item.n_chunks != 8) {
        hand_over(item);
      } else if (L::kByCopies && maps.has_outputs) {
        write_by_copies(at, maps.outputs[at.task]);
      } else {
        write(at);
      }
    }
    if (L::kByCopies && leaving != 0 && t % kGroupThreads == 0) wait_stores();
    if (kInTurns && group() == 0) take_turn(0);  // group 1's last
    for (int i = static_cast<int>(blockIdx.x); i < walk.n_split * walk.n_parts; i += static_cast<int>(gridDim.x))
      join_parts(Item(walk, i));
  }
};

template <class Kind>
__global__ void __launch_bounds__(kGroupsThreads, 1)
    batch_wgmma_kernel(const __grid_constant__ MmaTasks tasks, const __grid_constant__ Walk walk,
                       const __grid_constant__ GroupMaps maps, float4* scratch) {
  extern __shared__ __align__(1024) std::byte memory[];
  const Shared<Kind> shared(memory);
  if (threadIdx.x == 0) shared.make_barriers();
  __syncthreads();
  let_next_start();
  const int t = static_cast<int>(threadIdx.x);
  constexpr int kFewRegisters =
      Kind::kPlanes == 1 && Kind::kColumns == 128 && Kind::F::kHasMin ? 24 : 40;  // where the others need every one
  if (t < kGroupThreads) {
    give_registers<kFewRegisters>();
    Filler<Kind>{tasks, walk, maps, shared, scratch}.run(t);
  } else {
    take_registers<256 - kFewRegisters / 2 - 4>();
    Multiplier<Kind>(tasks, walk, maps, shared, t - kGroupThreads, scratch).run();
  }
}

template <class Kind>
bool make_maps(const MmaTasks& tasks, uint32_t second, const Hopper& hopper, GroupMaps& maps) {
  using F = typename Kind::F;
  bool made = make_column_maps(tasks, hopper, 128, Kind::kBoxTokens, maps);
  for (int i = 0; i < tasks.n; ++i) {
    made &= (second >> i & 1) != 0 ? make_row_maps<typename F::Second>(tasks, i, hopper, maps)
                                   : make_row_maps<typename F::First>(tasks, i, hopper, maps);
  }
  return made;
}

}  // namespace assay::backend::cuda::superblocks
