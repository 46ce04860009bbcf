// Products of superblock formats on Hopper (sm_90a), in tiles and groups of warps as wgmma_tile.cuh has them, of 64 or
// 128 columns: the kernel of batch_wgmma.cu and expert_wgmma.cu. A group multiplies the high digits of a superblock's
// weights, shifts by some bits, multiplies the low digits, so that one integer an output and superblock comes out of
// the tensor cores. Minima times sums of activations are a product of half-precision integers (at most 63 and 2,032, so
// exact). Of 128 columns one half is multiplied while the other's sums are shifted, or become terms; or the groups take
// turns. Floats follow the contract, one chain an output in a register.
#pragma once

#include "backend/cuda/decode/superblock_chains.cuh"
#include "backend/cuda/decode/superblock_filler.cuh"
#include "backend/cuda/decode/superblock_products.cuh"

namespace assay::backend::cuda::superblocks {

// Barriers 2 and 3: the turns of group 0 and 1.
__device__ inline void take_turn(int group) {
  asm volatile("bar.sync %0, %1;" : : "r"(2 + group), "n"(2 * kGroupThreads) : "memory");
}
__device__ inline void give_turn(int group) {
  asm volatile("bar.arrive %0, %1;" : : "r"(3 - group), "n"(2 * kGroupThreads) : "memory");
}
template <class Kind>
struct Multiplier : TreeChains<Kind> {
  using Tree = TreeChains<Kind>;
  using Tree::tasks, Tree::t, Tree::chain, Tree::walk, Tree::s, Tree::is_new, Tree::leaving, Tree::group;
  using L = Layout<Kind>;
  using F = typename Kind::F;
  using Products = SuperblockProducts<Kind>;
  static constexpr int kPlanes = Kind::kPlanes, kHalves = Kind::kHalves;
  static constexpr bool kSingle = Kind::kSingle, kInTurns = Products::kInTurns;
  const GroupMaps& maps;
  const uint32_t filled_of_row;
  Products products;

  __device__ Multiplier(const MmaTasks& all, const Walk& items, const GroupMaps& of_all, const Shared<Kind>& shared,
                        int thread, float4* far)
      : Tree(all, items, shared, thread, far), maps(of_all), filled_of_row(kSingle ? filled_in_row() : 0xFF) {}

  __device__ int chunk_begin(int i) const { return i * tasks.n_blocks / 8; }

  // A bit for each of the item's chunks that has a superblock.
  __device__ uint32_t filled_chunks(const Item& item) const {
    const uint32_t own = ((1u << item.n_chunks) - 1) << item.first_chunk;
    return kSingle ? filled_of_row & own : own;
  }
  __device__ uint32_t filled_in_row() const {
    uint32_t filled = 0;
    for (int i = 0; i < 8; ++i) filled |= (chunk_begin(i) < chunk_begin(i + 1) ? 1u : 0u) << i;
    return filled;
  }
  __device__ uint32_t sums_at(const Ring& scalars) const {
    return shared_address(s.sums(scalars.stage));
  }  // of activations

  // A superblock. While the tensor cores have one half of the columns the other's sums are shifted, or become terms.
  template <class Format>
  __device__ void add_superblock(const Ring& rows, const Ring& columns, const Ring& scalars) {
    const uint32_t stage = s.rows(rows.stage), row = static_cast<uint32_t>(t / 32 * 16);
    const uint64_t from = swizzled_columns(s.columns(columns.stage));
    Format w;
    Fragments a[8];
    products.forget(products.sum);
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
      products.template multiply_high_digits<Format, 0>(a, i, from);
      end_products();
    }
    if constexpr (kHalves == 2 && !kInTurns) {
      begin_products();
#pragma unroll
      for (int i = 0; i < 4; ++i) products.template multiply_high_digits<Format, 1>(a, i, from);
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
    products.template multiply_low_digits<Format, 0>(w, a, from, sums_at(scalars));
    if constexpr (kHalves == 2) {
      if constexpr (!kInTurns) {
        wait_products<1>();
        products.template multiply_low_digits<Format, 1>(w, a, from, sums_at(scalars));
      }
      wait_products<kInTurns ? 0 : 1>();
      if constexpr (kInTurns) this->free_columns(columns);
      add_terms<0>(w, scalars);
      if constexpr (Format::kHasMin && kPlanes == 1) {
        begin_products();
        products.multiply_minima(w, sums_at(scalars), 1);
        end_products();
      }
    }
    wait_products<0>();
    if constexpr (!kInTurns) this->free_columns(columns);
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
        float f = static_cast<float>(products.sum[32 * kHalf + i]),
              m = Format::kHasMin ? products.of_minima[kHalf][i] : 0.0f;
        if constexpr (kPlanes == 2) {
          f = num::fma(0x1p-7f, static_cast<float>(products.sum[32 * kHalf + 16 + i]), f);  // quant::join_planes
          if constexpr (Format::kHasMin) m = num::fma(0x1p-7f, products.of_minima[kHalf][16 + i], m);
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
      const int begin = chunk_begin(item.first_chunk), end = chunk_begin(item.first_chunk + item.n_chunks);
      const uint32_t filled = filled_chunks(item);
      int chunk = kSingle ? __ffs(static_cast<int>(filled)) - 1 : 0;
      for (int block = begin; block < end; ++block) {
        if constexpr (!kSingle) {
          for (; chunk_begin(item.first_chunk + chunk + 1) <= block; ++chunk)
            this->end_chunk(chunk, item.n_chunks, columns);
        }
        if (F::kMixed && (walk.second >> at.task & 1) != 0) {
          add_superblock<typename F::Second>(rows, columns, scalars);
        } else {
          add_superblock<typename F::First>(rows, columns, scalars);
        }
        rows.next(L::kRoom.rows);
        columns.next(L::kRoom.columns);
        scalars.next(L::kRoom.scalars);
        if constexpr (kSingle) {
          this->end_single(chunk, filled, columns);
          chunk = __ffs(static_cast<int>(filled & (~1u << chunk))) - 1;
        }
      }
      if constexpr (kSingle) {
        this->end_singles(begin < end);
      } else {
        for (; chunk < item.n_chunks; ++chunk) this->end_chunk(chunk, item.n_chunks, columns);
      }
      if constexpr (Kind::kByExpert) {
        this->write_pairs(item.tile);
      } else if (item.n_chunks != 8) {
        this->hand_over(item);
      } else if (L::kByCopies && maps.has_outputs) {
        this->write_by_copies(at, maps.outputs[at.task]);
      } else {
        this->write(at);
      }
    }
    if (L::kByCopies && leaving != 0 && t % kGroupThreads == 0) wait_stores();
    if (kInTurns && group() == 0) take_turn(0);  // group 1's last
    for (int i = static_cast<int>(blockIdx.x); i < walk.n_split * walk.n_parts; i += static_cast<int>(gridDim.x))
      this->join_parts(Item(walk, i));
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
