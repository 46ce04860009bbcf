// fast_decode_linears of fast_decode.h. A warp takes two rows at a time, with a gate the one of each matrix: the
// instruction's 16 rows are the 8 chunks of both, its 8 columns the 8 chunks of the token, so of its sums those on the
// diagonal count, and the tree is three shuffles. A block of threads has a multiprocessor for itself, and its ring of
// stages is as large as fits: it begins when the block before it leaves, and fills while others still work and while
// the row is made. A row with a norm takes longest: warps of their own make it, while the others fill the ring. One
// kernel serves all rows, for of its code little is left in the caches when another has run.
#include <algorithm>

#include "backend/cuda/decode/decode_places.cuh"
#include "backend/cuda/decode/fast_decode.h"
#include "backend/cuda/rows/usual_gate.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/tiles/fast_types.cuh"
#include "num/math.h"
#include "ops/rows/activation.h"
#include "quant/activations.h"

namespace assay::backend::cuda {
namespace {

using Places = DecodeHalvesPlaces;
constexpr int kDecodeWarps = Places::kWarps;
constexpr int kMakers = 256;  // threads before those, which make a row with a norm alone
constexpr int kThreads = kMakers + 32 * kDecodeWarps;
constexpr int kStageBlocks = Places::kStageBlocks, kLineBytes = 64 * kStageBlocks, kStageBytes = Places::kStageBytes;
static_assert(kStageBytes == 16 * kLineBytes);
constexpr int kPieces = kLineBytes / 16,
              kLinesAtOnce = 32 / kPieces;  // of 16 bytes; that a warp copies with one instruction
constexpr int kStagesFilling =
    1;  // that a warp has under way while it fills its ring and others make the row, see start()
constexpr int kLeftForAttention =
    4;  // multiprocessors without queries, keys and values: attention of one token begins there while they are made

struct FastDecodeLinear {
  const uint16_t* w = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;  // null: nobody reads it
  int32_t n_rows = 0, first_pair = 0;
};
struct FastDecodeTask {
  DecodeSource source;
  FastDecodeLinear linear[kLinearsMax];  // with a gate two of one shape, whose rows make pairs
  int32_t n_linears = 0, n_pairs = 0;
  int32_t floats_begin = 0, ring_begin = 0;  // of shared memory
  DecodeGate gate;
};

// The row as the lanes read it, rounded: chunk c begins 64 c bytes late, so that neighbouring chunks lie in different
// banks; of a block of 32 lane `part` of four has the 16 bytes that it wants for both steps, elements 2 part, 8 + 2
// part, 16 + 2 part and 24 + 2 part and their neighbours.
template <class T>
struct RowHalves {
  static constexpr bool kOfShard = false;  // these kernels neither send nor wait
  static constexpr int kBlock = 32;
  static constexpr bool kSpread = false;
  uint8_t* x;
  ChunkOf chunk_of;

  static __device__ int makers(const DecodeSource& source) { return source.w != nullptr ? kMakers : kThreads; }
  static __device__ int turn(const DecodeSource& source) { return kept(8 * makers(source)); }
  static __device__ void meet(const DecodeSource& source) {
    asm volatile("bar.sync 1, %0;" : : "r"(makers(source)) : "memory");
  }
  __device__ RowHalves(uint8_t* memory, int width) : x(memory), chunk_of(width / 32) {}
  __device__ int place(int i) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, block = 8 * i + lane / 4;
    return 64 * (block + chunk_of(block)) + 4 * (lane % 4);
  }
  __device__ void put(const Eight& e, int place, bool inside) const {
    if (!inside) return;
    auto* at = reinterpret_cast<uint32_t*>(x + place);
#pragma unroll
    for (int j = 0; j < 4; ++j) at[4 * j] = T::rounded(e.v[2 * j], e.v[2 * j + 1]);
  }
};

// The rows of a pair.
struct Pair {
  const FastDecodeLinear* linear[2];
  int row[2];
  __device__ Pair(const FastDecodeTask& task, int pair) {
    int i = 0;
    if (task.gate.y != nullptr) {
      linear[0] = &task.linear[0], linear[1] = &task.linear[1];
      row[0] = row[1] = pair;
      return;
    }
    while (i + 1 < task.n_linears && pair >= task.linear[i + 1].first_pair) ++i;
    linear[0] = linear[1] = &task.linear[i];
    row[0] = 2 * (pair - linear[0]->first_pair);
    row[1] = min(row[0] + 1, linear[0]->n_rows - 1);  // of an odd number the last comes twice
  }
};

// A warp's pairs of rows, stage by stage through its ring; kDepth stages are there or on their way.
template <class T, int kDepth>
class PairWalk {
 public:
  __device__ PairWalk(const FastDecodeTask& task, int warp, uint8_t* memory)
      : task_(task), first_(warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)),
        lane_(static_cast<int>(threadIdx.x) % 32), n_(task.source.d / 32), longest_((n_ + 7) / 8),
        ring_(shared_address(memory) + static_cast<uint32_t>(task.ring_begin + warp * (kDepth * kStageBytes))),
        pair_ahead_(first_) {
    chunk_begin_ = begin_of(lane_ / 4);
    chunk_length_ = begin_of(lane_ / 4 + 1) - chunk_begin_;
    is_ragged_ = n_ % 8 != 0;
  }

  // Fills the ring; a paced warp asks for a stage when an earlier one is there. Memory is busy with some 32 KB on their
  // way to a multiprocessor, which are one stage of each warp. More would only queue, and in those queues the row's own
  // loads stand, and what the kernel before still copies.
  __device__ void start(bool is_paced) {
    find_rows();
#pragma unroll 1
    for (int i = 0; i + 1 < kDepth; ++i) {
      if (is_paced) wait_copies<kStagesFilling - 1>();
      fetch();
    }
  }

  // All of them, with the row at x.
  __device__ void run(const uint8_t* x) {
    for (int pair = first_; pair < task_.n_pairs; pair += step()) {
      float y[2];
      take_pair(x, y);
      if (lane_ == 0) write(pair, y);
    }
  }

 private:
  __device__ static int step() { return static_cast<int>(gridDim.x) * kDecodeWarps; }
  __device__ int begin_of(int chunk) const { return static_cast<int>(quant::chunk_begin(chunk, n_)); }

  __device__ void write(int i, float (&y)[2]) const {
    const Pair pair(task_, i);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const FastDecodeLinear& linear = *pair.linear[r];
      if (linear.bias != nullptr) y[r] = y[r] + linear.bias[pair.row[r]];
      if (linear.y != nullptr) linear.y[pair.row[r]] = y[r];
    }
    if (task_.gate.y == nullptr) return;
    task_.gate.y[i] = usual_activation(task_.gate.activation, y[0]) * y[1];
  }

  // The products of the next pair with the row; every lane has them.
  __device__ void take_pair(const uint8_t* x, float (&y)[2]) {
    float sum[4] = {};
    const uint8_t* own = x + 64 * (chunk_begin_ + lane_ / 4) + 16 * (lane_ % 4);
    for (int at = 0; at < longest_; at += kStageBlocks) {
      wait_copies<kDepth - 2>();
      __syncwarp();
      fetch();
#pragma unroll
      for (int block = 0; block < kStageBlocks; ++block) {
        if (at + block >= longest_) break;
        multiply_block(block, *reinterpret_cast<const uint4*>(own + 64 * (at + block)), at + block < chunk_length_,
                       sum);
      }
      slot_ = slot_ + 1 == kDepth ? 0 : slot_ + 1;
    }
    const int chunk = lane_ / 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      y[r] = __shfl_sync(kWholeWarp, chunk % 2 == 0 ? sum[2 * r] : sum[2 * r + 1],
                         4 * chunk + chunk / 2);  // the diagonal's
#pragma unroll
      for (int width = 4; width <= 16; width *= 2) y[r] = y[r] + __shfl_xor_sync(kWholeWarp, y[r], width);
    }
  }

  __device__ void multiply_block(int block, const uint4& x, bool inside, float (&sum)[4]) const {
    const float before[4] = {sum[0], sum[1], sum[2], sum[3]};
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const int line = lane_ % 16, piece = 4 * block + 2 * step + lane_ / 16;
      uint32_t w[4];
      load_matrices(ring_ + static_cast<uint32_t>(slot_ * kStageBytes + line * kLineBytes + (piece ^ (line % 8)) * 16),
                    w);
      step == 0 ? T::multiply(sum, w, x.x, x.y) : T::multiply(sum, w, x.z, x.w);
    }
    if (!is_ragged_) return;
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] = inside ? sum[e] : before[e];
  }

  __device__ void find_rows() {
    if (pair_ahead_ >= task_.n_pairs) return;
    const Pair pair(task_, pair_ahead_);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      rows_[r] = pair.linear[r]->w + int64_t{pair.row[r]} * task_.source.d + lane_ % kPieces * 8;
  }
  // Line 8 r + c of a stage is of row r and chunk c, its pieces of 16 bytes exchanged by c.
  __device__ void fetch() {
    if (pair_ahead_ < task_.n_pairs) {
#pragma unroll
      for (int first = 0; first < 16; first += kLinesAtOnce) {
        const int line = first + lane_ / kPieces, piece = lane_ % kPieces, chunk = line % 8, begin = begin_of(chunk);
        const bool inside = begin + at_ahead_ + piece / 4 < begin_of(chunk + 1);
        const uint16_t* row = rows_[first / 8];
        copy_weights(
            ring_ + static_cast<uint32_t>(slot_ahead_ * kStageBytes + line * kLineBytes + (piece ^ chunk) * 16),
            inside ? row + 32 * (begin + at_ahead_) : row, inside);
      }
      at_ahead_ += kStageBlocks;
      if (at_ahead_ >= longest_) {
        at_ahead_ = 0;
        pair_ahead_ += step();
        find_rows();
      }
    }
    end_copies();
    slot_ahead_ = slot_ahead_ + 1 == kDepth ? 0 : slot_ahead_ + 1;
  }

  const FastDecodeTask& task_;
  const int first_, lane_, n_, longest_;  // the warp's first pair; blocks of a row, of its longest chunk
  const uint32_t ring_;
  int chunk_begin_, chunk_length_;  // of the lane's chunk of the row
  bool is_ragged_;                  // chunks differ in length
  const uint16_t* rows_[2] = {};
  int pair_ahead_, at_ahead_ = 0, slot_ = 0, slot_ahead_ = 0;
};

template <class T, int kDepth>
__global__ void __launch_bounds__(kThreads, 1) fast_decode_kernel(const __grid_constant__ FastDecodeTask task) {
  extern __shared__ __align__(128) uint8_t memory[];
  const bool multiplies = threadIdx.x >= kMakers, makes_row = !multiplies || task.source.w == nullptr;
  PairWalk<T, kDepth> walk(task, static_cast<int>(threadIdx.x - kMakers) / 32, memory);
  if (multiplies) walk.start(!makes_row);
  const RowHalves<T> x(memory, task.source.d);
  if (makes_row) {
    AheadOfRow<RowHalves<T>, 1> ahead(task.source, x);
    wait_for_previous();
    let_next_start();  // no earlier: the weights that the next kernel asks for would be ahead of the row in every queue
    ahead.ask();
    make_row(task.source, ahead, reinterpret_cast<float*>(memory + task.floats_begin), x);
  }
  __syncthreads();
  if (multiplies) walk.run(x.x);
}

template <class T, int kDepth>
void start(const FastDecodeTask& task, const Queue& queue) {
  const int bytes = Places(task.source.d, task.source.w != nullptr).bytes(kDepth);
  const auto kernel = fast_decode_kernel<T, kDepth>;
  require(allow_shared(kernel, static_cast<size_t>(bytes)), "shared memory");
  take_decode_cut(kernel);
  const int n_free = task.n_linears > 1 && task.gate.y == nullptr ? kLeftForAttention : 0;
  const int n_blocks =
      std::min(std::max(queue.n_multiprocessors - n_free, 1), (task.n_pairs + kDecodeWarps - 1) / kDecodeWarps);
  launch(queue, kernel, dim3(static_cast<unsigned>(n_blocks)), kThreads, static_cast<size_t>(bytes), task);
}
template <class T>
void start_of(int stages, const FastDecodeTask& task, const Queue& queue) {
  stages == Places::kStages ? start<T, Places::kStages>(task, queue) : start<T, Places::kStagesShort>(task, queue);
}

}  // namespace

void fast_decode_linears(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                         int stages, const Queue& queue) {
  FastDecodeTask task;
  task.source = source;
  task.gate = gate;
  for (const LinearTask& linear : linears) {
    const auto rows = static_cast<int32_t>(linear.w->rows);
    task.linear[task.n_linears++] = {reinterpret_cast<const uint16_t*>(linear.w->parts.base[0]), linear.bias, linear.y,
                                     rows, task.n_pairs};
    task.n_pairs += gate.y == nullptr ? (rows + 1) / 2 : rows;
  }
  if (gate.y != nullptr) task.n_pairs /= 2;
  const Places places(source.d, source.w != nullptr);
  task.floats_begin = places.floats, task.ring_begin = places.rings;
  static_assert(Places(kDecodeWidthMax, true).rings - Places(kDecodeWidthMax, true).floats ==
                row_floats(kDecodeWidthMax) * 4);
  linears.front().w->dtype == tensor::DType::F16 ? start_of<FastF16>(stages, task, queue)
                                                 : start_of<FastBF16>(stages, task, queue);
}

}  // namespace assay::backend::cuda
