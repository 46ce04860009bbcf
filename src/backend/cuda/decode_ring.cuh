// How the warps of a decode kernel come by their weights. A unit of work is four rows of a matrix (two of float weights), with a gate half of them
// of each of two matrices. A warp takes units in turn and has a ring of slots in shared memory for them, filled some steps ahead: a slot holds
// a step, which is whole rows where they are short, else a few blocks of each of the contract's chunks. Parts of blocks that are too small to
// come in such pieces (scales) come for the whole unit with its first step. All of it comes in runs of many neighbouring bytes: what is fetched
// here and there by 16 bytes comes at a fraction of the memory's rate.
#pragma once

#include "backend/cuda/decode_formats.cuh"
#include "backend/cuda/gather.cuh"
#include "backend/cuda/mma_steps.cuh"
#include "backend/cuda/wgmma_steps.cuh"
#include "num/math.h"

namespace assay::backend::cuda {

// A part of a matrix, and where rows of it stand in a slot.
struct DecodePart {
  const uint8_t* base = nullptr;
  int32_t bytes = 0, stride = 0;  // of a block, 0: there is none; from row to row in the slot
};
struct DecodeLinear {
  DecodePart big[2], small[2];
  int32_t format = 0;  // index into the kernel's list
  int32_t n_rows = 0, n_units = 0, first_warp = 0, n_warps = 0;  // of the warps of the grid, each of which keeps to one matrix
  const float* bias = nullptr;
  float* y = nullptr;  // null: nobody reads it
};

struct DecodeTask {
  DecodeSource source;
  DecodeLinear linear[kLinearsMax];  // with a gate two, of one shape and format
  DecodeGate gate;
  int32_t n_linears = 0, n_blocks = 0;  // blocks of a row
  int32_t n_chunks = 8;                 // of each output; fewer where n_blocks are several rows of a shard's columns (DecodeGate::sums)
  int32_t step = 0;                     // blocks of each chunk in a slot; 0: whole rows
  int32_t n_walkers = 0, depth = 0, n_small = 0;  // warps of a block that take units; slots of a warp, and for the small parts of units
  int32_t slot_bytes = 0, small_bytes = 0;
  int32_t barriers_begin = 0, floats_begin = 0, ring_begin = 0, small_begin = 0;  // in shared memory
};

__host__ __device__ constexpr int row_stride_of(int bytes, int skew) { return (bytes + 127 - skew) / 128 * 128 + skew; }
// Runs begin and end at 16 bytes; what is between is less than two such pieces.
__host__ __device__ constexpr int small_stride_of(int n_blocks, PartOf part) {
  return row_stride_of(n_blocks * part.bytes + (part.bytes < 16 ? 30 : 0), part.skew);
}

__device__ inline void fetch_16(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void arrive_when_fetched(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasCopyEngine = false;
#else
inline constexpr bool kHasCopyEngine = true;
#endif

// Each lane's run of bytes, its place and its source at whole 16 bytes: by the copy engine, where there is one; else by the lanes, run by run.
struct Runs {
  static __device__ void make(uint32_t barrier) {
    make_barrier(barrier, kHasCopyEngine ? 1 : 32);
    if constexpr (kHasCopyEngine) barriers_made();
  }
  static __device__ void announce(int bytes, uint32_t barrier) {
    if constexpr (kHasCopyEngine) {
      const auto all = static_cast<uint32_t>(warp_sum(bytes));
      if (threadIdx.x % 32 == 0) arrive_with_bytes(barrier, all);
    }
  }
  static __device__ void fetch(uint32_t to, const uint8_t* from, int bytes, uint32_t barrier) {
    if constexpr (kHasCopyEngine) {
      if (bytes > 0) copy_bytes(to, from, static_cast<uint32_t>(bytes), barrier);
    } else {
      const int lane = threadIdx.x % 32;
      unsigned left = __ballot_sync(kWholeWarp, bytes > 0);
#pragma unroll 1
      for (; left != 0; left &= left - 1) {
        const int of = __ffs(static_cast<int>(left)) - 1, n = __shfl_sync(kWholeWarp, bytes, of);
        const uint32_t run_to = __shfl_sync(kWholeWarp, to, of);
        const auto* run = reinterpret_cast<const uint8_t*>(__shfl_sync(kWholeWarp, reinterpret_cast<unsigned long long>(from), of));
        for (int at = 16 * lane; at < n; at += 512) fetch_16(run_to + static_cast<uint32_t>(at), run + at);
      }
    }
  }
  static __device__ void close(uint32_t barrier) {
    if constexpr (!kHasCopyEngine) arrive_when_fetched(barrier);
  }
  static __device__ void wait(uint32_t barrier, uint32_t parity) {
    if constexpr (kHasCopyEngine) {
      wait_phase(barrier, parity);
    } else {
      asm volatile(
          "{\n.reg .pred done;\nAGAIN:\n"
          "mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
          "@!done bra AGAIN;\n}\n" ::"r"(barrier), "r"(parity)
          : "memory");
    }
  }
};

// Writes the product y of a lane's row of a matrix, or gates, adds and sends it, as the gate says. The whole warp calls it. part: which of a unit's
// kRows rows it is, with a gate those of the second half being the other matrix's; chunk: the lane's; mine: whether the lane has a product.
template <int kRows, bool kOfShard, class Linear>
__device__ void write_product(const DecodeGate& gate, const Linear& to, int row, int part, int chunk, bool mine, float residual, float y) {
  if (const SumsTask& sums = gate.sums; kOfShard && sums.n_shards > 0) {
    if (mine) send_sum(sums, row * sums.n_shards + (chunk * sums.n_shards) / 8, y);
    return;
  }
  if (mine && to.bias != nullptr) y = y + to.bias[row];
  if (mine && to.y != nullptr) to.y[row] = y;
  if (mine && gate.residual != nullptr) gate.sum[row] = residual + y;
  if (gate.y != nullptr) {
    const float up = __shfl_down_sync(kWholeWarp, y, kRows / 2);
    y = (gate.activation == ops::GateActivation::silu ? num::silu(y) : num::gelu_tanh(y)) * up;
    if (!mine || part >= kRows / 2) return;
    gate.y[row] = y;
  }
  if (kOfShard && mine) send_column(gate.send, row, y);
}

// A warp at its units. List: the kernel's formats (decode_linear.cuh).
template <class List, class Row>
class DecodeWalk {
  static constexpr int kRows = List::Shared::kRows;

 public:
  __device__ DecodeWalk(const DecodeTask& task, uint8_t* memory, const Row& x) : task_(task), memory_(memory) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int i_warp = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    int i = 0;
    while (!is_pair() && i + 1 < task.n_linears && i_warp >= task.linear[i + 1].first_warp) ++i;
    const int row = seat_.lane % kRows;
    row_ = row % rows_of_one();
    i_linear_ = i + row / rows_of_one();
    format_ = __shfl_sync(kWholeWarp, linear().format, 0);
    unit_ = unit_ahead_ = warp < task.n_walkers ? i_warp - linear().first_warp : linear().n_units;
    step_ = is_whole() ? longest() : task.step;
    const int begin = static_cast<int>(quant::chunk_begin(seat_.chunk, task.n_blocks));
    length_ = static_cast<int>(quant::chunk_begin(seat_.chunk + 1, task.n_blocks)) - begin;
    ring_ = task.ring_begin + warp * task.depth * task.slot_bytes;
    small_ = task.small_begin + warp * task.n_small * task.small_bytes;
    barriers_ = shared_address(memory) + static_cast<uint32_t>(task.barriers_begin + 8 * warp * task.depth);
    if (unit_ < linear().n_units && seat_.lane < task.depth) Runs::make(barriers_ + 8 * static_cast<uint32_t>(seat_.lane));
    __syncwarp();
    find_place(x, begin, static_cast<int>(quant::chunk_begin(seat_.chunk & (n_chunks() - 1), task.n_blocks)));
  }

  __device__ void start() {
#pragma unroll 1
    for (int i = 0; i < task_.depth; ++i) fetch_step();
  }

  __device__ void run() {
#pragma unroll 1
    for (; unit_ < linear().n_units; unit_ += linear().n_warps) {
      typename List::Shared::Sum sum{};
      const LanePlace first = place_of_unit();
      if (n_held_ == 0) ask_residual();
#pragma unroll 1
      for (int at = 0; at < longest(); at += step_) {
        Runs::wait(barriers_ + 8 * slot_, parity_);
        List::with(format_, [&]<class F>(F) { add_blocks<F>(sum, first, at); });
        __syncwarp();  // all have read the slot
        if (++slot_ == task_.depth) slot_ = 0, parity_ ^= 1;
        fetch_step();
      }
      if (++small_slot_ == task_.n_small) small_slot_ = 0;
      hold(List::Shared::finish(sum, seat_, n_chunks()));
    }
  }

 private:
  __device__ const DecodeLinear& linear() const { return task_.linear[i_linear_]; }
  __device__ int n_chunks() const { return Row::kOfShard ? task_.n_chunks : 8; }
  __device__ bool is_pair() const { return task_.gate.y != nullptr; }
  __device__ int rows_of_one() const { return is_pair() ? kRows / 2 : kRows; }
  __device__ int longest() const { return (task_.n_blocks + 7) / 8; }  // blocks of the longest chunk
  __device__ bool is_whole() const { return task_.step == 0; }  // a slot holds whole rows
  __device__ int row_of(int unit) const { return min(unit * rows_of_one() + row_, linear().n_rows - 1); }

  // The next step into the next slot. Lane `kRows * chunk + row` asks for the bytes of a row, or of a chunk of one; of a small part for those of a
  // row too, `chunk` being the part.
  __device__ void fetch_step() {
    if (unit_ahead_ >= linear().n_units) return;
    const int row = seat_.lane % kRows, chunk = seat_.lane / kRows;
    const uint32_t memory = shared_address(memory_), barrier = barriers_ + 8 * slot_ahead_;
    const int64_t first = int64_t{row_of(unit_ahead_)} * task_.n_blocks;
    int block = 0, n = chunk == 0 ? task_.n_blocks : 0;
    if (!is_whole()) {
      block = static_cast<int>(quant::chunk_begin(chunk, task_.n_blocks)) + at_ahead_;
      n = chunk < 8 ? max(min(step_, static_cast<int>(quant::chunk_begin(chunk + 1, task_.n_blocks)) - block), 0) : 0;
    }
    const DecodePart big[2] = {linear().big[0], linear().big[1]};
    const bool has_small = at_ahead_ == 0 && chunk < 2;
    const DecodePart small = linear().small[has_small ? chunk : 0];
    const uint8_t* small_from = small.base + first * small.bytes;
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(small_from) & 15);
    const int small_n = has_small && small.bytes > 0 ? (past + task_.n_blocks * small.bytes + 15) & ~15 : 0;
    Runs::announce(n * (big[0].bytes + big[1].bytes) + small_n, barrier);
    int to = ring_ + slot_ahead_ * task_.slot_bytes;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int place = to + row * big[i].stride + (is_whole() ? 0 : chunk * step_ * big[i].bytes);
      Runs::fetch(memory + static_cast<uint32_t>(place), big[i].base + (first + block) * big[i].bytes, n * big[i].bytes, barrier);
      to += kRows * big[i].stride;
    }
    if (at_ahead_ == 0) {
      to = small_ + small_ahead_ * task_.small_bytes + (chunk == 1 ? kRows * linear().small[0].stride : 0) + row * small.stride;
      Runs::fetch(memory + static_cast<uint32_t>(to), small_from - past, small_n, barrier);
    }
    Runs::close(barrier);
    if (++slot_ahead_ == task_.depth) slot_ahead_ = 0;
    if ((at_ahead_ += step_) < longest()) return;
    at_ahead_ = 0;
    unit_ahead_ += linear().n_warps;
    if (++small_ahead_ == task_.n_small) small_ahead_ = 0;
  }

  // Blocks of the row of weights, and of the row of activations, with which the lane's chunk begins.
  __device__ void find_place(const Row& x, int begin, int x_begin) {
    place_.swap = seat_.swap();
    const int own_row = List::Shared::own_row(seat_), block = is_whole() ? begin : seat_.chunk * step_;
    int at = ring_ + List::Shared::own_place(seat_, linear().big[0].bytes);
    place_.row_stride = linear().big[0].stride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const DecodePart& part = linear().big[i];
      place_.big[i] = memory_ + (at + own_row * part.stride + block * part.bytes);
      at += kRows * part.stride;
    }
    at = small_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const DecodePart& part = linear().small[i];
      small_bytes_[i] = part.bytes;
      place_.small[i] = memory_ + (at + own_row * part.stride + begin * part.bytes);
      at += kRows * part.stride;
    }
    place_.x = List::Shared::place_of(x, x_begin, seat_, n_chunks());
  }
  __device__ LanePlace place_of_unit() const {
    LanePlace p = place_;
    const unsigned first = static_cast<unsigned>(row_of(unit_)) * static_cast<unsigned>(task_.n_blocks);
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // a run begins with the whole 16 bytes that its first one is in
      p.small[i] += small_slot_ * task_.small_bytes + static_cast<int>(first * static_cast<unsigned>(small_bytes_[i]) & 15u);
    }
    return p;
  }

  // The blocks of a step, the first of which is the lane's block `at`; its slot is there.
  template <class F>
  __device__ void add_blocks(typename List::Shared::Sum& sum, LanePlace p, int at) const {
#pragma unroll
    for (int i = 0; i < F::kBigs; ++i) p.big[i] += slot_ * task_.slot_bytes;
#pragma unroll
    for (int i = 0; i < F::kSmalls; ++i) p.small[i] += at * F::small(i).bytes;
    p.x += at * Row::kRecord;
#pragma unroll F::kUnrolled
    for (int n = min(step_, length_ - at); n > 0; n -= F::kAtOnce) {
      F::template add<Row>(sum, p, n);
#pragma unroll
      for (int i = 0; i < F::kBigs; ++i) p.big[i] += F::kAtOnce * F::big(i).bytes;
#pragma unroll
      for (int i = 0; i < F::kSmalls; ++i) p.small[i] += F::kAtOnce * F::small(i).bytes;
      p.x += F::kAtOnce * Row::kRecord;
    }
  }

  // What is added to the row that this lane will write.
  __device__ void ask_residual() {
    if (task_.gate.residual == nullptr) return;
    const int unit = unit_ + seat_.chunk * linear().n_warps;
    if (unit < linear().n_units) residual_ = __ldcg(task_.gate.residual + row_of(unit));
  }

  // y: the product of row `lane % kRows` of the unit. It is written with those of seven more units, each of which has four lanes; of a shard's sums
  // a unit has as many times more lanes as there are shards.
  __device__ void hold(float y) {
    const int place = seat_.chunk & (n_chunks() - 1);
    if (place == n_held_) held_ = y;
    if (++n_held_ < n_chunks() && unit_ + linear().n_warps < linear().n_units) return;
    write(unit_ - (n_held_ - 1 - place) * linear().n_warps, place < n_held_, held_);
    n_held_ = 0;
  }
  __device__ void write(int unit, bool is_held, float y) const {
    const int row = unit * rows_of_one() + row_;
    const bool mine = is_held && seat_.part < kRows && row < linear().n_rows;
    write_product<kRows, Row::kOfShard>(task_.gate, linear(), row, seat_.part, seat_.chunk, mine, residual_, y);
  }

  const DecodeTask& task_;
  uint8_t* const memory_;
  const Seat seat_;
  LanePlace place_;  // of a unit's first block, but for the slots
  int small_bytes_[2];
  int i_linear_, row_;  // whose row `lane % kRows` of a unit is: matrix, and row of those of one matrix
  int format_, length_, step_;  // blocks: of the lane's chunk, of a step of a chunk
  int unit_, unit_ahead_, at_ahead_ = 0, slot_ = 0, slot_ahead_ = 0, small_slot_ = 0, small_ahead_ = 0;
  int ring_, small_;
  uint32_t barriers_, parity_ = 0;
  float held_ = 0.0f, residual_ = 0.0f;
  int n_held_ = 0;
};

}  // namespace assay::backend::cuda
