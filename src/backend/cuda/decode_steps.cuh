// Decode with weights in superblocks of 256: a warp's steps. A unit of work is four rows of a matrix, with a gate two of each of two; a warp's 32
// lanes are the contract's eight chunks of them, each a chain of its own. A step is one superblock of every lane. All its bytes come by copies of
// 16 that run on their own, up to six steps ahead: whole lines of shared memory, in an order in which lanes side by side read different groups of
// banks. They cost a warp fewer instructions than the copy engine's runs of bytes, which want uniform addresses.
#pragma once

#include <utility>

#include "backend/cuda/decode_superblocks.cuh"
#include "backend/cuda/mma_steps.cuh"

namespace assay::backend::cuda {

struct StepLinear {
  const uint8_t* base[kPartsMax] = {};
  int32_t format = 0;                                            // index into the kernel's list
  int32_t n_rows = 0, n_units = 0, first_warp = 0, n_warps = 0;  // of the warps of the grid, each of which keeps to one matrix
  const float* bias = nullptr;
  float* y = nullptr;  // null: nobody reads it
};

struct StepTask {
  int32_t n_linears = 0, n_blocks = 0;  // blocks of a row
  int32_t n_chunks = 8;                 // of each output; fewer where n_blocks are several rows of a shard's columns (DecodeGate::sums)
  int32_t n_walkers = 0, depth = 0, n_deeper = 0;  // warps of a block that take units; slots of each, of the first ones one more
  bool lets_early = false;  // the next kernel start, ahead of the wait for the kernel before
  int32_t slot_bytes = 0, floats_begin = 0, ring_begin = 0;  // in shared memory
  uint32_t begin[8] = {};            // first block of each chunk
  StepLinear linear[kLinearsMax];    // with a gate two, of one shape and format
  DecodeSource source;
  DecodeGate gate;
};

__device__ inline void fetch_4(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// A warp at its units. List: the kernel's formats; kDepthMax: the most slots of a warp, six at most.
template <class List, class Row, int kDepthMax>
class StepWalk {
  static_assert(kDepthMax <= 6);
  static constexpr int kRows = 4;

 public:
  __device__ StepWalk(const StepTask& task, uint8_t* memory)
      : task_(task), memory_(memory), shared_(shared_address(memory)), lane_(threadIdx.x % 32) {
    compute_now(shared_);
    const int warp = __shfl_sync(kWholeWarp, static_cast<int>(threadIdx.x) / 32, 0);
    const int i_warp = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    i_linear_ = 0;
    while (!is_pair() && i_linear_ + 1 < task.n_linears && i_warp >= task.linear[i_linear_ + 1].first_warp) ++i_linear_;
    unit_ = unit_ahead_ = warp < task.n_walkers ? i_warp - linear().first_warp : linear().n_units;
    const int depth = task.depth + (warp < task.n_deeper ? 1 : 0);
    slot_ = ring_ = task.ring_begin + (warp * task.depth + min(warp, task.n_deeper)) * task.slot_bytes;
    end_ = ring_ + depth * task.slot_bytes;
    depth_ = depth;
    compute_now(depth_);
    longest_ = (task.n_blocks + 7) / 8;
  }
  __device__ void start() {
    List::with(linear().format, [&]<class F>(F) {
      const From<F> from(*this);
#pragma unroll 1
      for (int slot = ring_; slot != end_; slot += task_.slot_bytes) fetch_step<F>(from, slot);
    });
  }
  __device__ void run(const Row& x) {
    const auto begin_of = [&](int chunk) { return chunk * task_.n_blocks / 8; };
    const int chunk = own_chunk(), of_output = chunk & (n_chunks() - 1);
    const uint8_t* x_begin = x.memory + Row::place(begin_of(of_output), of_output);
    length_ = begin_of(chunk + 1) - begin_of(chunk);
#pragma unroll 1
    while (unit_ < linear().n_units) {
      const int own_unit = unit_ + of_output * linear().n_warps;
      if (task_.gate.residual != nullptr && own_unit < linear().n_units) residual_ = __ldcg(task_.gate.residual + row_of(own_unit, own_row()));
      List::with(linear().format, [&]<class F>(F) { take_units<F>(x_begin); });
      write(own_unit, of_output < n_held_, held_);
    }
  }

 private:
  __device__ int own_row() const { return static_cast<int>(lane_ % kRows); }  // the lane's, of the unit's
  __device__ int own_chunk() const { return static_cast<int>(lane_ / kRows); }
  __device__ const StepLinear& linear() const { return task_.linear[i_linear_]; }
  __device__ int n_chunks() const { return Row::kOfShard ? task_.n_chunks : 8; }
  __device__ bool is_pair() const { return task_.gate.y != nullptr; }
  __device__ int rows_of_one() const { return is_pair() ? kRows / 2 : kRows; }
  __device__ uint32_t row_of(int unit, int row) const {  // row: of those of one matrix
    return static_cast<uint32_t>(min(unit * rows_of_one() + row, linear().n_rows - 1));
  }
  __device__ int row_in_one(int row) const { return is_pair() ? row % (kRows / 2) : row; }
  __device__ const StepLinear& linear_of(int row) const { return task_.linear[is_pair() ? row / (kRows / 2) : i_linear_]; }

  // Of a part kPieces pieces of each superblock are there: 32 / kPieces superblocks are fetched at a time, those of chunk and row
  // (lane / kPieces) / 4 and (lane / kPieces) % 4 first.
  template <class F>
  struct From {
    const uint8_t* base[F::kParts + 1];  // of the lane's row's matrix, and which of the unit's rows it is
    int row[F::kParts + 1];
    __device__ explicit From(const StepWalk& walk) {
#pragma unroll
      for (int k = 0; k < F::kParts; ++k) {
        const uint32_t n = static_cast<uint32_t>(F::part(k).bytes) / 16;
        const int of_unit = static_cast<int>(walk.lane_ / n % kRows);
        base[k] = walk.linear_of(of_unit).base[F::part(k).i] + walk.lane_ % n * 16;
        row[k] = walk.row_in_one(of_unit);
      }
      if constexpr (F::kScalePart >= 0) base[F::kParts] = walk.linear_of(walk.own_row()).base[F::kScalePart];
      row[F::kParts] = walk.row_in_one(walk.own_row());
    }
  };
  template <class F, int kPart>
  __device__ void fetch_part(const From<F>& of_lane, uint32_t to) const {
    constexpr PiecesOf kOf = F::part(kPart);
    constexpr uint32_t kPieces = kOf.bytes / 16, kChunks = 8 / kPieces;  // of each copy of 32 lanes
    const uint32_t at = lane_ / kPieces, chunk = kPieces == 8 ? 0 : at / kRows;
    const uint32_t row_bytes = static_cast<uint32_t>(task_.n_blocks) * kOf.bytes;
    const uint8_t* from = of_lane.base[kPart] + uint64_t{row_of(unit_ahead_, of_lane.row[kPart])} * row_bytes;
    from += static_cast<uint32_t>(step_ahead_ * kOf.bytes);
    compute_now(from);
    const uint32_t own = to + kOf.at + place_of_piece(kPieces, at, lane_ % kPieces);
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      fetch_16((kPieces == 8 && i % 2 != 0 ? own ^ 64 : own) + 512 * i, from + uint64_t{task_.begin[i * kChunks + chunk]} * kOf.bytes);
    }
  }
  template <class F, size_t... k>
  __device__ void fetch_parts(const From<F>& from, uint32_t to, std::index_sequence<k...>) const {
    (fetch_part<F, static_cast<int>(k)>(from, to), ...);
    if constexpr (F::kScalePart >= 0) {
      const uint8_t* at = from.base[F::kParts] + 2 * block_of(row_of(unit_ahead_, from.row[F::kParts]), step_ahead_);
      fetch_4(to + F::kFactors + 4 * lane_, at - (reinterpret_cast<uintptr_t>(at) & 2));
    }
  }
  template <class F>
  __device__ void fetch_step(const From<F>& from, int slot) {
    if (unit_ahead_ < linear().n_units) {
      fetch_parts<F>(from, shared_ + static_cast<uint32_t>(slot), std::make_index_sequence<F::kParts>{});
      if (++step_ahead_ == longest_) step_ahead_ = 0, unit_ahead_ += linear().n_warps;
    }
    end_copies();
  }
  // The lane's, of a row.
  __device__ uint64_t block_of(uint32_t row, int step) const {
    const auto n = static_cast<uint32_t>(task_.n_blocks);
    return uint64_t{row} * n + (lane_ / kRows * n / 8 + static_cast<uint32_t>(step));
  }

  // Until the next step's superblocks are there. Not a switch, which compilers make a table of.
  __device__ void wait_step() const {
    if (kDepthMax > 3 && depth_ > 3) {
      if (depth_ > 5) {
        wait_copies<5>();
      } else if (depth_ > 4) {
        wait_copies<4>();
      } else {
        wait_copies<3>();
      }
    } else if (depth_ > 2) {
      wait_copies<2>();
    } else if (depth_ > 1) {
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncwarp();
  }
  // Eight units, or those that are left; of a shard's sums as many as an output has chunks. Lanes of chunk i keep their row's product of the i-th.
  template <class F>
  __device__ void take_units(const uint8_t* x_begin) {
    compute_now(lane_);  // what follows from it for other formats is not wanted
    const From<F> from(*this);
#pragma unroll 1
    for (n_held_ = 0; n_held_ < n_chunks() && unit_ < linear().n_units; ++n_held_) {
      float c = 0.0f;
      const uint8_t* x = x_begin;
#pragma unroll 1
      for (int step = 0; step < longest_; ++step, x += Row::kRecord) {
        wait_step();
        take_step<F>(from, c, step, x);
        slot_ += task_.slot_bytes;
        if (slot_ == end_) slot_ = ring_;
      }
      c = chunks_sum(c, n_chunks());
      if ((own_chunk() & (n_chunks() - 1)) == n_held_) held_ = c;
      unit_ += linear().n_warps;
    }
  }
  // The superblocks that are there, then their places are filled again.
  template <class F>
  __device__ void take_step(const From<F>& from, float& c, int step, const uint8_t* x) {
    uint32_t d = 0;
    if constexpr (F::kScalePart >= 0) {
      d = *reinterpret_cast<const uint32_t*>(memory_ + (static_cast<uint32_t>(slot_ + F::kFactors) + 4 * lane_));
      if ((block_of(row_of(unit_, from.row[F::kParts]), step) & 1) != 0) d >>= 16;
    }
    const float next = F::template add<Row>(c, LaneBlock{memory_, static_cast<uint32_t>(slot_), lane_}, x, d);
    if (step < length_) c = next;
    __syncwarp();
    fetch_step<F>(from, slot_);
  }

  __device__ void write(int unit, bool is_held, float y) const {
    const int row = unit * rows_of_one() + row_in_one(own_row());
    const StepLinear& to = linear_of(own_row());
    const bool mine = is_held && row < to.n_rows;
    write_product<kRows, Row::kOfShard>(task_.gate, to, row, own_row(), own_chunk(), mine, residual_, y);
  }

  const StepTask& task_;
  uint8_t* const memory_;
  uint32_t shared_;
  uint32_t lane_;
  int i_linear_, depth_, ring_, end_, slot_, longest_, length_;
  int unit_, unit_ahead_, step_ahead_ = 0, n_held_ = 0;
  float held_ = 0.0f, residual_ = 0.0f;  // residual_: what is added to the row that this lane will write
};

}  // namespace assay::backend::cuda
