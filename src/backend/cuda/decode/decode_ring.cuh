// How the warps of a decode kernel come by weights in blocks of 32 and floats. A unit of work is four rows of a matrix
// (two of float weights), with a gate half of them of each of two matrices. A warp takes units in turn and has a ring
// of slots in shared memory for them, which it fills ahead: a slot holds a step, which is whole rows where they are
// short, else a few blocks of each of the contract's chunks. Scales come for the whole unit with its first step. All of
// it comes in runs of many neighbouring bytes: what is fetched here and there by 16 bytes comes at a fraction of the
// memory's rate. One thread asks for them, with operands that its warp shares: a run is then one instruction.
#pragma once

#include "backend/cuda/decode/decode_formats.cuh"
#include "backend/cuda/tiles/mma_steps.cuh"
#include "backend/cuda/tiles/wgmma_steps.cuh"

namespace assay::backend::cuda {

// A part of a matrix: its weights, or its scales. A unit's rows are two halves, with a gate of two matrices. Of a
// matrix with fewer rows than a unit the first ones are fetched for those that are not there.
struct DecodePart {
  const uint8_t* base[2] = {};  // of the halves, counted from the unit's first row
  int32_t bytes = 0;            // of a block, 0: there is none
  int32_t stride = 0;           // in the slot from row to row, of scales from half to half
  int32_t next_row[2] = {};     // of weights: bytes from a half's first row to its second
  int32_t half_bytes[2] = {};   // of scales
};
struct DecodeLinear {
  DecodePart weights, scales;
  int32_t format = 0;  // index into the kernel's list
  int32_t n_rows = 0, n_units = 0, first_warp = 0,
          n_warps = 0;                      // of the warps of the grid, each of which keeps to one matrix
  int32_t rows_of_one = 0, last_first = 0;  // of a unit's rows those of one matrix; the last unit's first row
  const float* bias = nullptr;
  float* y = nullptr;  // null: nobody reads it
};

// When a kernel lets the next one start: with itself, or when its wait is over.
enum class NextStart : int32_t { at_once, after_wait };

struct DecodeTask {
  DecodeSource source;
  DecodeLinear linear[kLinearsMax];  // with a gate two, of one shape and format
  DecodeGate gate;
  int32_t n_linears = 0, n_blocks = 0;  // blocks of a row
  int32_t n_chunks =
      8;  // of each output; fewer where n_blocks are several rows of a shard's columns (DecodeGate::sums)
  int32_t n_walkers = 0, depth = 0;  // warps of a block that take units; slots of a warp
  NextStart next_start = NextStart::at_once;
  int32_t step = 0, n_steps = 0;  // blocks of each chunk in a slot, 0: whole rows; steps of a unit
  int32_t slot_bytes = 0,
          scales_stride = 0;  // scales of whole rows are in the slots, else each warp has two places for them
  // In shared memory. made_at: a word that tells whether the row is made.
  int32_t barriers_begin = 0, made_at = 0, floats_begin = 0, ring_begin = 0, scales_begin = 0;
};

__host__ __device__ constexpr int row_stride_of(int bytes, int skew) { return (bytes + 127 - skew) / 128 * 128 + skew; }
// Scales of so many blocks, from the whole 16 bytes on that they begin in to those that they end in.
__host__ __device__ constexpr int scales_stride_of(int n_blocks, int bytes) {
  return bytes > 0 ? (n_blocks * bytes + 30) / 16 * 16 : 0;
}
__host__ __device__ constexpr int longest_chunk(int n_blocks) { return (n_blocks + 7) / 8; }
__device__ inline int chunk_begin(int chunk, int n_blocks) {
  return chunk * n_blocks / 8;
}  // quant::chunk_begin of rows that decode serves

// The warps of a block meet when the barriers of its slots are made; those that make them do not wait.
__device__ inline void slots_made(int n_fillers) {
  asm volatile("bar.arrive 2, %0;" : : "r"(kWalkerThreads + 32 * n_fillers) : "memory");
}
__device__ inline void wait_for_slots(int n_fillers) {
  asm volatile("bar.sync 2, %0;" : : "r"(kWalkerThreads + 32 * n_fillers) : "memory");
}

__device__ inline void arrive_when_fetched(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" : : "r"(barrier) : "memory");
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasCopyEngine = false;
#else
inline constexpr bool kHasCopyEngine = true;
#endif

// Runs of neighbouring bytes, by one thread and the copy engine; where there is none, by the lanes of a warp.
struct Runs {
  static constexpr int kThreads = kHasCopyEngine ? 1 : 32;  // that fetch, and arrive where bytes are awaited
  static __device__ void announce(int bytes, uint32_t barrier) {
    if constexpr (kHasCopyEngine) arrive_with_bytes(barrier, static_cast<uint32_t>(bytes));
  }
  static __device__ void fetch(uint32_t to, const uint8_t* from, int bytes, uint32_t barrier) {
    if constexpr (kHasCopyEngine) {
      copy_bytes(to, from, static_cast<uint32_t>(bytes), barrier);
    } else {
      for (int at = 16 * static_cast<int>(threadIdx.x % 32); at < bytes; at += 512)
        fetch_16(to + static_cast<uint32_t>(at), from + at);
    }
  }
  static __device__ void close(uint32_t barrier) {
    if constexpr (!kHasCopyEngine) arrive_when_fetched(barrier);
  }
  // Whether the phase of this parity has ended.
  static __device__ bool has_come(uint32_t barrier, uint32_t parity) {
    uint32_t is;
    asm volatile(
        "{\n.reg .pred done;\nmbarrier.test_wait.parity.shared.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}\n"
        : "=r"(is)
        : "r"(barrier), "r"(parity)
        : "memory");
    return is != 0;
  }
  static __device__ void wait(uint32_t barrier, uint32_t parity) {
    if constexpr (kHasCopyEngine) {
      wait_phase(barrier, parity);
    } else {
      asm volatile(
          "{\n.reg .pred done;\nAGAIN:\n"
          "mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
          "@!done bra AGAIN;\n}\n"
          :
          : "r"(barrier), "r"(parity)
          : "memory");
    }
  }
};

__device__ inline bool is_pair(const DecodeTask& task) { return task.gate.y != nullptr; }
// A unit's first row: the last units of a matrix may share rows.
__device__ inline int first_row_of(const DecodeLinear& linear, int unit) {
  return min(unit * linear.rows_of_one, linear.last_first);
}

// Of a warp that runs together one thread, known as one by the compiler: the operands of a copy are then what the warp
// shares.
__device__ inline bool is_elected() {
  if constexpr (kHasCopyEngine) {
    uint32_t is;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(is));
    return is != 0;
  }
  return true;
}
__device__ inline volatile uint32_t& row_is_made(const DecodeTask& task, uint8_t* memory) {
  return *reinterpret_cast<volatile uint32_t*>(memory + task.made_at);
}
// The same, of a value that is the same in all lanes.
__device__ inline int of_warp(int x) { return __shfl_sync(kWholeWarp, x, 0); }

// The steps of a walker's units, one after the other, as they are fetched.
template <class List>
class DecodeFetch {
  static constexpr int kHalf = List::Shared::kRows / 2;

 public:
  __device__ DecodeFetch(const DecodeTask& task, uint8_t* memory, int walker)
      : task_(task), memory_(shared_address(memory)), warp_(walker) {
    const int i_warp = warp_ * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    if (!is_pair(task)) {
#pragma unroll 1
      while (i_linear_ + 1 < task.n_linears && i_warp >= task.linear[i_linear_ + 1].first_warp) ++i_linear_;
    }
    unit_ = warp_ < task.n_walkers ? i_warp - linear().first_warp : linear().n_units;
    ring_ = memory_ + static_cast<uint32_t>(task.ring_begin + warp_ * task.depth * task.slot_bytes);
    barriers_ = memory_ + static_cast<uint32_t>(task.barriers_begin + 8 * warp_ * task.depth);
  }
  __device__ int warp() const { return warp_; }
  __device__ int i_linear() const { return i_linear_; }
  __device__ const DecodeLinear& linear() const { return task_.linear[i_linear_]; }
  __device__ uint32_t barrier(int slot) const { return barriers_ + 8 * static_cast<uint32_t>(slot); }

  // Without a filler: the first steps, into all slots.
  __device__ void start() {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (unit_ < linear().n_units && lane < task_.depth) make_barrier(barrier(lane), Runs::kThreads);
    if constexpr (kHasCopyEngine) barriers_made();
    __syncwarp();
#pragma unroll 1
    for (int slot = 0; slot < task_.depth; ++slot) next(slot);
  }
  // The next step into this slot.
  __device__ void next(int slot) {
    if (unit_ >= linear().n_units) return;
    if (is_elected()) {
      const uint32_t to = ring_ + static_cast<uint32_t>(slot * task_.slot_bytes);
      if (task_.step == 0) {
        fetch_unit(to, barrier(slot));
      } else {
        fetch_step(to, barrier(slot));
      }
    }
    __syncwarp();
    skip();
  }
  // So many steps, or those that are left, are fetched by another warp.
  __device__ void skip(int n) {
#pragma unroll 1
    for (int i = 0; i < n && has_next(); ++i) skip();
  }
  __device__ bool has_next() const { return unit_ < linear().n_units; }

 private:
  static constexpr int kScaleRuns = List::kHasScales ? 2 : 0;

  __device__ void skip() {
    if (++step_ < task_.n_steps) return;
    step_ = 0;
    round_ ^= 1;
    unit_ += linear().n_warps;
  }

  __device__ void fetch_unit(uint32_t to, uint32_t barrier) const {
    const int row = first_row_of(linear(), unit_);
    int bytes = 2 * kHalf * task_.n_blocks * linear().weights.bytes;
    Run scales[2];
    find_scales(row, scales, bytes);
    Runs::announce(bytes, barrier);
    fetch_scales(scales, to + static_cast<uint32_t>(task_.scales_begin), barrier);
    fetch_weights(row, to, 0, task_.n_blocks, barrier);
    Runs::close(barrier);
  }

  __device__ void fetch_step(uint32_t to, uint32_t barrier) const {
    const int row = first_row_of(linear(), unit_), at = step_ * task_.step;
    const int n_blocks = step_ + 1 == task_.n_steps ? task_.n_blocks - 8 * at : 8 * task_.step;
    int bytes = 2 * kHalf * n_blocks * linear().weights.bytes;
    Run scales[2];
    if (step_ == 0) find_scales(row, scales, bytes);
    Runs::announce(bytes, barrier);
    if (step_ == 0)
      fetch_scales(scales,
                   memory_ + static_cast<uint32_t>(task_.scales_begin + (2 * warp_ + round_) * task_.scales_stride),
                   barrier);
#pragma unroll 1
    for (int chunk = 0; chunk < 8; ++chunk) {
      const int begin = chunk_begin(chunk, task_.n_blocks) + at, left = chunk_begin(chunk + 1, task_.n_blocks) - begin;
      if (left <= 0) continue;
      fetch_weights(row, to + static_cast<uint32_t>(chunk * task_.step * linear().weights.bytes), begin,
                    min(left, task_.step), barrier);
    }
    Runs::close(barrier);
  }

  // The scales of half a unit's rows, from the whole 16 bytes on that they begin in.
  struct Run {
    const uint8_t* from;
    int bytes;
  };
  __device__ void find_scales(int row, Run (&runs)[2], int& bytes) const {
    const DecodePart& part = linear().scales;
#pragma unroll
    for (int h = 0; h < kScaleRuns; ++h) {
      const uint8_t* begin = part.base[h] + int64_t{row} * (task_.n_blocks * part.bytes);
      const int past = static_cast<int>(reinterpret_cast<uintptr_t>(begin) & 15);
      runs[h] = {begin - past, (past + part.half_bytes[h] + 15) & ~15};
      bytes += runs[h].bytes;
    }
  }
  __device__ void fetch_scales(const Run (&runs)[2], uint32_t to, uint32_t barrier) const {
#pragma unroll
    for (int h = 0; h < kScaleRuns; ++h)
      Runs::fetch(to + static_cast<uint32_t>(h * linear().scales.stride), runs[h].from, runs[h].bytes, barrier);
  }

  // Of the unit's rows so many blocks from `begin` on.
  __device__ void fetch_weights(int row, uint32_t to, int begin, int n_blocks, uint32_t barrier) const {
    const DecodePart& part = linear().weights;
    const int row_bytes = task_.n_blocks * part.bytes;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint8_t* from = part.base[h] + (int64_t{row} * row_bytes + begin * part.bytes);
#pragma unroll
      for (int r = 0; r < kHalf; ++r) {
        Runs::fetch(to, from, n_blocks * part.bytes, barrier);
        from += part.next_row[h];
        to += static_cast<uint32_t>(part.stride);
      }
    }
  }

  const DecodeTask& task_;
  const uint32_t memory_;
  const int warp_;
  int i_linear_ = 0, unit_, step_ = 0, round_ = 0;
  uint32_t ring_, barriers_;
};

// The filler: a warp that fetches the first step of all walkers, then the second, until their slots are full. Few at a
// time until the row is made: what is asked for beyond what the memory delivers within its latency makes queues, in
// which the loads of the row stand.
template <class List>
class DecodeFill {
 public:
  __device__ DecodeFill(const DecodeTask& task, uint8_t* memory) : task_(task), memory_(memory) {}
  __device__ void run() {
    make_slots();
#pragma unroll 1
    for (int slot = 0; slot < task_.depth; ++slot) {
#pragma unroll 1
      for (int walker = 0; walker < task_.n_walkers; ++walker) {
        DecodeFetch<List> fetch(task_, memory_, walker);
        fetch.skip(slot);
        if (!fetch.has_next()) continue;
        pace();
        fetch.next(slot);
#pragma unroll
        for (int i = kAhead - 1; i > 0; --i) under_way_[i] = under_way_[i - 1];
        under_way_[0] = fetch.barrier(slot);
        ++n_begun_;
      }
    }
  }

 private:
  static constexpr int kAhead = 3;  // steps under way until the row is made

  __device__ void make_slots() const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (lane < task_.n_walkers * task_.depth) {
      make_barrier(shared_address(memory_) + static_cast<uint32_t>(task_.barriers_begin + 8 * lane), Runs::kThreads);
    }
    if (lane == 0) row_is_made(task_, memory_) = 0;
    if constexpr (kHasCopyEngine) barriers_made_for_copies();
    __syncwarp();
    slots_made(1);
  }
  // Never for ever: once the row is made a walker may have the slot's barrier two phases further, which looks as if the
  // first had not ended.
  __device__ void pace() {
    while (!is_made_ && n_begun_ >= kAhead && !Runs::has_come(under_way_[kAhead - 1], 0))
      is_made_ = row_is_made(task_, memory_) != 0;
  }

  const DecodeTask& task_;
  uint8_t* const memory_;
  uint32_t under_way_[kAhead] = {};  // the barriers of the steps begun last, the last one first
  int n_begun_ = 0;
  bool is_made_ = false;
};

// A warp at its units. List: the kernel's formats (decode_linear.cuh).
template <class List, class Row>
class DecodeWalk {
  static constexpr int kRows = List::Shared::kRows;

 public:
  __device__ DecodeWalk(const DecodeTask& task, uint8_t* memory, const DecodeFetch<List>& fetch, const Row& x)
      : task_(task), memory_(memory), linear_(task.linear[fetch.i_linear()]), warp_(fetch.warp()) {
    const int begin = chunk_begin(seat_.chunk, task.n_blocks);
    length_ = chunk_begin(seat_.chunk + 1, task.n_blocks) - begin;
    step_ = is_whole() ? longest() : task.step;
    unit_ = warp_ < task.n_walkers
                ? warp_ * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x) - linear_.first_warp
                : linear_.n_units;
    own_ = seat_.lane % kRows % linear_.rows_of_one;
    find_place(x, begin);
    n_units_ = linear_.n_units, n_warps_ = linear_.n_warps, format_ = linear_.format;
    compute_now(n_units_), compute_now(n_warps_), compute_now(format_), compute_now(own_);
  }

  __device__ void run(DecodeFetch<List>& fetch) {
#pragma unroll 1
    for (; unit_ < n_units_; unit_ += n_warps_) {
      typename List::Shared::Sum sum{};
      if (n_held_ == 0) ask_residual();
#pragma unroll 1
      for (int at = 0; at < longest(); at += step_) {
        Runs::wait(fetch.barrier(slot_), parity_);
        List::with(format_, [&]<class F>(F) { add_blocks<F>(sum, at); });
        __syncwarp();  // all have read the slot
        fetch.next(slot_);
        if (++slot_ == task_.depth) slot_ = 0, parity_ ^= 1;
      }
      round_ ^= 1;
      hold(List::Shared::finish(sum, seat_, n_chunks()));
    }
  }

 private:
  __device__ bool is_whole() const { return task_.step == 0; }  // a slot holds whole rows
  __device__ int longest() const { return longest_chunk(task_.n_blocks); }
  __device__ int n_chunks() const { return Row::kOfShard ? task_.n_chunks : 8; }

  __device__ void find_place(const Row& x, int begin) {
    place_.swap = seat_.swap();
    place_.x =
        List::Shared::place_of(x, chunk_begin(seat_.chunk & (n_chunks() - 1), task_.n_blocks), seat_, n_chunks());
    const int own_row = List::Shared::own_row(seat_), block = is_whole() ? begin : seat_.chunk * step_;
    const int ring = task_.ring_begin + warp_ * task_.depth * task_.slot_bytes;
    const DecodePart &weights = linear_.weights, &scales = linear_.scales;
    place_.row_stride = weights.stride;
    place_.weights = memory_ + (ring + List::Shared::own_place(seat_, weights.bytes) + own_row * weights.stride +
                                block * weights.bytes);
    if constexpr (List::kHasScales) {
      const int row = seat_.lane % kRows,
                at = task_.scales_begin + (is_whole() ? ring : 2 * warp_ * task_.scales_stride);
      place_.scales = memory_ + (at + row / (kRows / 2) * scales.stride +
                                 (row % (kRows / 2) * task_.n_blocks + begin) * scales.bytes);
    }
  }

  // The blocks of a step, the first of which is the lane's block `at`; its slot is there.
  template <class F>
  __device__ void add_blocks(typename List::Shared::Sum& sum, int at) const {
    LanePlace p = place_;
    p.weights += slot_ * task_.slot_bytes;
    if constexpr (F::kScaleBytes > 0) {
      const int first = first_row_of(linear_, unit_) + own_ -
                        seat_.lane % (kRows / 2);  // of the lane's half, whose run begins with whole 16 bytes
      const unsigned past = static_cast<unsigned>(first) * static_cast<unsigned>(task_.n_blocks * F::kScaleBytes) & 15u;
      p.scales += (is_whole() ? slot_ : round_) * task_.scales_stride + at * F::kScaleBytes + static_cast<int>(past);
    }
    p.x += at * Row::kRecord;
    int n = min(step_, length_ - at);
    const auto add_one = [&](int left) {
      F::template add<Row>(sum, p, left);
      p.weights += F::kAtOnce * F::kBlockBytes;
      p.scales += F::kAtOnce * F::kScaleBytes;
      p.x += F::kAtOnce * Row::kRecord;
    };
    if constexpr (F::kUnrolled > 1) {
#pragma unroll 1
      for (; n >= F::kUnrolled * F::kAtOnce; n -= F::kUnrolled * F::kAtOnce) {
#pragma unroll
        for (int i = 0; i < F::kUnrolled; ++i) add_one(F::kAtOnce);
      }
    }
#pragma unroll 1
    for (; n > 0; n -= F::kAtOnce) add_one(n);
  }

  // What is added to the row that this lane will write.
  __device__ void ask_residual() {
    if (task_.gate.residual == nullptr) return;
    const int unit = unit_ + seat_.chunk * n_warps_;
    if (unit < n_units_)
      residual_ = __ldcg(task_.gate.residual + min(first_row_of(linear_, unit) + own_, linear_.n_rows - 1));
  }

  // y: the product of row `lane % kRows` of the unit. It is written with those of seven more units, each of which has
  // four lanes; of a shard's sums a unit has as many times more lanes as there are shards.
  __device__ void hold(float y) {
    const int place = seat_.chunk & (n_chunks() - 1);
    if (place == n_held_) held_ = y;
    if (++n_held_ < n_chunks() && unit_ + n_warps_ < n_units_) return;
    write(unit_ - (n_held_ - 1 - place) * n_warps_, place < n_held_, held_);
    n_held_ = 0;
  }
  // Rows that the last unit shares with the one before are that one's.
  __device__ void write(int unit, bool is_held, float y) const {
    const DecodeLinear& to = is_pair(task_) ? task_.linear[seat_.lane % kRows / (kRows / 2)] : linear_;
    const int row = first_row_of(linear_, unit) + own_;
    const bool mine = is_held && seat_.part < kRows && row < to.n_rows && row >= unit * linear_.rows_of_one;
    write_product<kRows, Row::kOfShard>(task_.gate, to, row, seat_.part, seat_.chunk, mine, residual_, y);
  }

  const DecodeTask& task_;
  uint8_t* const memory_;
  const DecodeLinear& linear_;
  const int warp_;
  const Seat seat_;
  LanePlace place_;    // of a unit's first block, but for the slots
  int length_, step_;  // blocks: of the lane's chunk, of a step of a chunk
  int unit_, own_;     // own_: which of the unit's rows in its matrix row `lane % kRows` is
  int n_units_, n_warps_, format_;
  int slot_ = 0, round_ = 0;
  uint32_t parity_ = 0;
  float held_ = 0.0f, residual_ = 0.0f;
  int n_held_ = 0;
};

}  // namespace assay::backend::cuda
