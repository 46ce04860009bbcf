// Decode with weights in superblocks of 256: a warp's steps. A unit of work is four rows of a matrix, with a gate two
// of each of two; a walking warp's 32 lanes are the contract's eight chunks of them, each a chain of its own. A step is
// one superblock of every lane. All its bytes come by copies of 16 that run on their own, up to six steps ahead: whole
// lines of shared memory, in an order in which lanes side by side read different groups of banks. The first of them,
// which come while the block waits for the kernel ahead and makes the row, are brought by warps of their own, the
// fillers: few at a time until the row is made, for what is asked for beyond what the memory delivers within its
// latency makes queues, in which the loads of the row stand, and whoever asks. Those that follow a walker brings
// itself, each into the place of the one that it has done.
#pragma once

#include <utility>

#include "backend/cuda/decode/decode_ring.cuh"
#include "backend/cuda/decode/decode_superblocks.cuh"
#include "backend/cuda/tiles/mma_steps.cuh"

namespace assay::backend::cuda {

struct StepLinear {
  const uint8_t* base[kPartsMax] = {};
  int32_t format = 0;  // index into the kernel's list
  int32_t n_rows = 0, n_units = 0, first_warp = 0,
          n_warps = 0;  // of the walkers of the grid, each of which keeps to one matrix
  const float* bias = nullptr;
  float* y = nullptr;    // null: nobody reads it
  float* out = nullptr;  // where that value is written if StepTask::is_plain
};

struct StepTask {
  int32_t n_linears = 0, n_blocks = 0;  // blocks of a row
  int32_t n_chunks =
      8;  // of each output; fewer where n_blocks are several rows of a shard's columns (DecodeGate::sums)
  int32_t n_walkers = 0, depth = 0, n_deeper = 0;  // walkers that take units; slots of each, of the first ones one more
  int32_t n_fillers = 0;                           // of a block
  bool is_plain = false;    // no product has a bias, and of each one value is written: with a residual the sum, with a
                            // gate what that makes
  bool lets_early = false;  // the next kernel start, ahead of the wait for the kernel before
  int32_t slot_bytes = 0, floats_begin = 0, barriers_begin = 0, ring_begin = 0;  // in shared memory
  uint32_t begin[8] = {};                                                        // first block of each chunk
  StepLinear linear[kLinearsMax];  // with a gate two, of one shape and format
  DecodeSource source;
  DecodeGate gate;
};
// Slots of a block. Each has a barrier that is passed when its bytes are there; after the barriers stands a word that
// tells whether the row is made.
inline constexpr int kStepSlotsMax = 6 * kWalkersMax, kStepBarrierBytes = 8 * kStepSlotsMax + 128;

__device__ inline void fetch_4(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"(to), "l"(from) : "memory");
}

// Of a block, as a kernel is made for them; 0: as many as the task says.
template <int kFillers>
__device__ int n_fillers(const StepTask& task) {
  return kFillers > 0 ? kFillers : task.n_fillers;
}

// The steps of a walker, one after the other, as they are fetched.
class StepFetch {
 public:
  static constexpr int kRows = 4;
  __device__ StepFetch(const StepTask& task, uint8_t* memory)
      : task_(task), memory_(memory), shared_(shared_address(memory)), lane_(threadIdx.x % 32),
        longest_(longest_chunk(task.n_blocks)), rows_of_one_(is_pair() ? kRows / 2 : kRows) {
    compute_now(rows_of_one_);
    compute_now(shared_);
  }

 protected:
  __device__ int own_row() const { return static_cast<int>(lane_ % kRows); }  // the lane's, of the unit's
  __device__ int own_chunk() const { return static_cast<int>(lane_ / kRows); }
  __device__ const StepLinear& linear() const { return task_.linear[i_linear_]; }
  __device__ bool is_pair() const { return task_.gate.y != nullptr; }
  __device__ uint32_t row_of(int unit, int row) const {  // row: of those of one matrix
    return static_cast<uint32_t>(min(unit * rows_of_one_ + row, last_row_));
  }
  __device__ int row_in_one(int row) const { return is_pair() ? row % (kRows / 2) : row; }
  __device__ const StepLinear& linear_of(int row) const {
    return task_.linear[is_pair() ? row / (kRows / 2) : i_linear_];
  }

  // The first step of the walker's unit after so many others.
  __device__ void begin(int walker, int round) {
    const int i_warp = walker * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    i_linear_ = 0;
    while (!is_pair() && i_linear_ + 1 < task_.n_linears && i_warp >= task_.linear[i_linear_ + 1].first_warp)
      ++i_linear_;
    last_row_ = linear().n_rows - 1, n_units_ = linear().n_units, n_warps_ = linear().n_warps;
    unit_ahead_ = i_warp - linear().first_warp + round * linear().n_warps;
    step_ahead_ = 0;
  }
  __device__ bool has_step() const { return unit_ahead_ < n_units_; }
  __device__ void next_step() {
    if (++step_ahead_ == longest_) step_ahead_ = 0, unit_ahead_ += n_warps_;
  }
  __device__ int n_slots(int walker) const { return task_.depth + (walker < task_.n_deeper ? 1 : 0); }
  __device__ int first_slot(int walker) const { return walker * task_.depth + min(walker, task_.n_deeper); }
  __device__ uint32_t slot_at(int i) const {
    return shared_ + static_cast<uint32_t>(task_.ring_begin + i * task_.slot_bytes);
  }
  __device__ volatile uint32_t& row_is_made() const {
    return *reinterpret_cast<volatile uint32_t*>(memory_ + task_.barriers_begin + 8 * kStepSlotsMax);
  }
  __device__ uint32_t barrier_at(int i) const { return shared_ + static_cast<uint32_t>(task_.barriers_begin + 8 * i); }

  // Of a part kPieces pieces of each superblock are there: 32 / kPieces superblocks are fetched at a time, those of
  // chunk and row (lane / kPieces) / 4 and (lane / kPieces) % 4 first.
  template <class F>
  struct From {
    const uint8_t* base[F::kParts + 1];  // of the lane's row's matrix, and which of the unit's rows it is
    int row[F::kParts + 1];
    __device__ explicit From(const StepFetch& fetch) {
#pragma unroll
      for (int k = 0; k < F::kParts; ++k) {
        const uint32_t n = static_cast<uint32_t>(F::part(k).bytes) / 16;
        const int of_unit = static_cast<int>(fetch.lane_ / n % kRows);
        base[k] = fetch.linear_of(of_unit).base[F::part(k).i] + fetch.lane_ % n * 16;
        row[k] = fetch.row_in_one(of_unit);
      }
      if constexpr (F::kScalePart >= 0) base[F::kParts] = fetch.linear_of(fetch.own_row()).base[F::kScalePart];
      row[F::kParts] = fetch.row_in_one(fetch.own_row());
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
      fetch_16((kPieces == 8 && i % 2 != 0 ? own ^ 64 : own) + 512 * i,
               from + uint64_t{task_.begin[i * kChunks + chunk]} * kOf.bytes);
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
  // The lane's, of a row.
  __device__ uint64_t block_of(uint32_t row, int step) const {
    const auto n = static_cast<uint32_t>(task_.n_blocks);
    return uint64_t{row} * n + (lane_ / kRows * n / 8 + static_cast<uint32_t>(step));
  }

  const StepTask& task_;
  uint8_t* const memory_;
  uint32_t shared_, lane_;
  // In registers, for parameters that are looked up by the matrix's number delay every step.
  int longest_, rows_of_one_, last_row_ = 0, n_units_ = 0, n_warps_ = 0, i_linear_ = 0, unit_ahead_ = 0,
                              step_ahead_ = 0;
};

// A filler: of all walkers the first step, then the second, until their slots are full. kFillers: as for n_fillers().
template <class List, int kFillers>
class StepFill : StepFetch {
 public:
  using StepFetch::StepFetch;
  __device__ void run(int filler) {
    const int n = n_fillers<kFillers>(task_);
    bool is_first = true;
    int step = 0, round = 0;
#pragma unroll 1
    for (int i = 0; i <= task_.depth; ++i) {
#pragma unroll 1
      for (int walker = filler; walker < task_.n_walkers && i < n_slots(walker); walker += n) {
        begin(walker, round);
        if (!has_step()) continue;
        step_ahead_ = step;
        if (!is_first) pace();
        const int slot = first_slot(walker) + i;
        List::with(linear().format, [&]<class F>(F) {
          fetch_parts<F>(From<F>(*this), slot_at(slot), std::make_index_sequence<F::kParts>{});
        });
        if (is_first) is_first = false, wait_for_slots(n);
        arrive_when_fetched(barrier_at(slot));
        end_copies();
      }
      if (++step == longest_) step = 0, ++round;
    }
    if (is_first) wait_for_slots(n);
    wait_copies<0>();
  }

 private:
  // Two steps under way until the row is made.
  __device__ void pace() {
    if (!is_made_) is_made_ = row_is_made() != 0;
    if (!is_made_) wait_copies<1>();
  }

  bool is_made_ = false;
};

// A walker at its units. List: the kernel's formats.
template <class List, class Row, int kFillers>
class StepWalk : StepFetch {
 public:
  __device__ StepWalk(const StepTask& task, uint8_t* memory, int walker) : StepFetch(task, memory) {
    begin(walker, 0);
    if (walker >= task.n_walkers) unit_ahead_ = n_units_;
    unit_ = unit_ahead_;
    first_ = first_slot(walker);
    const int n = n_slots(walker);
    if (walker < task.n_walkers && static_cast<int>(lane_) < n)
      make_barrier(barrier_at(first_ + static_cast<int>(lane_)), 32);
    if (threadIdx.x == 0) row_is_made() = 0;
    __syncwarp();  // no fence: fillers come by a barrier that orders what is in shared memory
    slots_made(n_fillers<kFillers>(task));
#pragma unroll 1
    for (int i = 0; i < n && has_step(); ++i) next_step();  // the fillers'
    place_ = place_of(first_), barrier_ = barrier_at(first_), end_ = barrier_at(first_ + n);
    const auto begin_of = [&](int chunk) { return chunk * task_.n_blocks / 8; };
    const int chunk = own_chunk();
    length_ = begin_of(chunk + 1) - begin_of(chunk);
    format_ = linear().format;
    // The first step finds these in registers: what it looks up among the parameters comes 300 clocks and more after
    // the row.
    if constexpr (!Row::kOfShard) {
      find_ends();
      compute_now(out_), compute_now(x_begin_);
    }
    compute_now(length_), compute_now(format_), compute_now(place_), compute_now(barrier_), compute_now(lane_);
  }
  // What is added to the rows that are written next is asked for.
  __device__ void ask_residual() {
    const int unit = own_unit();
    if (task_.gate.residual != nullptr && unit < n_units_)
      residual_ = __ldcg(task_.gate.residual + row_of(unit, own_row()));
  }
  __device__ void run() {
    if (threadIdx.x == 0) row_is_made() = 1;
    if constexpr (Row::kOfShard) find_ends();  // only now: until the row is made its registers are wanted
#pragma unroll 1
    while (unit_ < n_units_) {
      const int unit = own_unit();
      List::with(format_, [&]<class F>(F) { take_units<F>(); });
      write(unit, of_output() < n_held_, held_);
      if (unit_ < n_units_) ask_residual();
    }
  }

 private:
  __device__ uint32_t place_of(int slot) const {
    return static_cast<uint32_t>(task_.ring_begin + slot * task_.slot_bytes);
  }
  __device__ int n_chunks() const { return Row::kOfShard ? task_.n_chunks : 8; }
  __device__ int of_output() const { return own_chunk() & (n_chunks() - 1); }  // the lane's chunk, of its output's
  __device__ void find_ends() {
    const int chunk = of_output();
    x_begin_ = Row::place(chunk * task_.n_blocks / 8, chunk);
    out_ = linear_of(own_row()).out;
  }
  __device__ int own_unit() const {
    return unit_ + of_output() * n_warps_;
  }  // of the next ones that are held, the one that the lane writes
  // Eight units, or those that are left; of a shard's sums as many as an output has chunks. Lanes of chunk i keep their
  // row's product of the i-th.
  template <class F>
  __device__ void take_units() {
#pragma unroll 1
    for (n_held_ = 0; n_held_ < n_chunks() && unit_ < n_units_; ++n_held_) {
      float c = 0.0f;
      const uint8_t* x = memory_ + x_begin_;
      int step = 0;
#pragma unroll 1
      do {
        Runs::wait(barrier_, parity_);
        take_step<F>(c, step, x);
        x += Row::kRecord;
        place_ += task_.slot_bytes;
        barrier_ += 8;
        if (barrier_ == end_) barrier_ = barrier_at(first_), place_ = place_of(first_), parity_ ^= 1;
      } while (++step < longest_);
      c = chunks_sum(c, n_chunks());
      if (of_output() == n_held_) held_ = c;
      unit_ += n_warps_;
    }
  }
  // The superblocks that are there, then their places are filled again.
  template <class F>
  __device__ void take_step(float& c, int step, const uint8_t* x) {
    const uint32_t at = place_;
    uint32_t d = 0;
    if constexpr (F::kScalePart >= 0) {
      d = *reinterpret_cast<const uint32_t*>(memory_ + (at + F::kFactors + 4 * lane_));
      if ((block_of(row_of(unit_, row_in_one(own_row())), step) & 1) != 0) d >>= 16;
    }
    const float next = F::template add<Row>(c, LaneBlock{memory_, at, lane_}, x, d);
    if (step < length_) c = next;
    __syncwarp();
    if (!has_step()) return;
    compute_now(
        lane_);  // so that what follows from it is not found ahead of the loop, where the first step would wait for it
    fetch_parts<F>(From<F>(*this), shared_ + place_, std::make_index_sequence<F::kParts>{});
    arrive_when_fetched(barrier_);
    next_step();
  }

  __device__ void write(int unit, bool is_held, float y) const {
    const int row = unit * rows_of_one_ + row_in_one(own_row());
    const bool mine = is_held && row <= last_row_;
    if (task_.is_plain) {
      if (is_pair()) y = gated<kRows>(task_.gate.activation, y);
      if (task_.gate.residual != nullptr) y = residual_ + y;
      if (mine && (!is_pair() || own_row() < kRows / 2)) out_[row] = y;
      return;
    }
    const StepLinear& to = linear_of(own_row());
    write_product<kRows, Row::kOfShard>(task_.gate, to, row, own_row(), own_chunk(), mine, residual_, y);
  }

  int first_, unit_, n_held_ = 0;  // first_: slot
  int length_, x_begin_, format_;  // of the lane's chunk: superblocks, and where they begin in the row; of the weights
  float* out_ = nullptr;           // StepLinear::out of the lane's matrix
  uint32_t place_, barrier_;       // of the slot that is next, in the block's memory
  uint32_t end_, parity_ = 0;      // end_: the barrier after the last slot's
  float held_ = 0.0f, residual_ = 0.0f;  // residual_: what is added to the row that this lane will write
};

}  // namespace assay::backend::cuda
