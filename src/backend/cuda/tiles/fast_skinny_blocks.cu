// fast_skinny_blocks of fast_blocks.h; the kernel is fast_skinny.cuh's. A stage is 128 elements of K, half a
// superblock; a lane decodes 64 of a row.
//
//   lane      0 .. 15: rows 0 .. 15, first share      16 .. 31: the same rows, second share
//   share     two blocks of 32, or of a superblock the two runs of 32 that lie in the same bytes (gemv_formats.cuh)
//   row       16 pieces of 16 bytes, piece j at j ^ (row % 8)
//
// A lane loads the bytes of its next stage before it decodes this one. A weight times its scale has 24 bits at most, so
// one fused multiply-add gives what decoding gives, which rounds the product and the sum.
#include "backend/cuda/decode/gemv_formats.cuh"
#include "backend/cuda/linear/format_list.cuh"
#include "backend/cuda/tiles/fast_blocks.h"
#include "backend/cuda/tiles/fast_skinny.cuh"
#include "num/math.h"

namespace assay::backend::cuda {
namespace {

using namespace fast_skinny_tile;
using Formats = FormatList<GemvQ4_0, GemvQ4_1, GemvQ8_0, GemvQ4_K, GemvQ5_K, GemvQ6_K>;
using BlocksTask = Task<Parts>;

template <class F>
class BlockStages {
 public:
  using Source = Parts;
  static constexpr int kSteps = 4, kDepth = 128, kRowBytes = 2 * kDepth, kBytes = kRows * kRowBytes;
  static constexpr int kWindow = 16 * kSteps;  // a stage is two, both decoded with the first

  // Windows are aligned, chunks to 32 elements.
  __device__ static int first_of(const Chunk& chunk) { return chunk.begin / kWindow * kWindow; }

  __device__ BlockStages(const BlocksTask& task, uint32_t memory, const Chunk& chunk)
      : task_(task), stage_(memory), first_(first_of(chunk)), end_(chunk.end), next_at_(first_ / kDepth * kDepth) {
    tile_ = chunk.begin == chunk.end ? task.n_tiles : static_cast<int>(blockIdx.x);
    find_row();
    load();
    window_ = first_;
  }
  __device__ void next() {
    if (window_ == first_ || window_ % kDepth == 0) {
      __syncwarp();  // the stage before has been read
      write();
      advance();
      load();
      __syncwarp();
    }
    step_ = window_ % kDepth / 16;
    window_ += kWindow;
    if (window_ >= end_) window_ = first_;
  }
  __device__ void read(int step, uint32_t (&w)[4]) const { read_step<kRowBytes>(stage_, step_ + step, w); }

 private:
  static constexpr bool kSuper = F::kBlock == 256;
  static constexpr int kEach = kSuper ? 1 : 2;  // blocks, or parts of one, of a lane

  __device__ static int row() { return static_cast<int>(threadIdx.x) % kRows; }
  __device__ static int share() { return static_cast<int>(threadIdx.x) % 32 / kRows; }
  __device__ int part() const { return at_ / kDepth % 2 * 2 + share(); }  // of a superblock

  __device__ void find_row() {
    if (tile_ >= task_.n_tiles) return;
    const auto place = place_of(task_, tile_);
    parts_ = place.run->w;
    n_blocks_ = task_.cols / F::kBlock;
    block_ = int64_t{min(place.row_0 + row(), place.run->n_rows - 1)} * n_blocks_;
  }
  __device__ void load() {
    at_ = next_at_;
    if (tile_ >= task_.n_tiles) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int block =
          kSuper ? at_ / 256
                 : min(at_ / 32 + 2 * share() + i, n_blocks_ - 1);  // the last stage may reach beyond the row
      raw_[i] = F::load(parts_, block_ + block, part());
    }
  }
  __device__ void advance() {
    next_at_ += kDepth;
    if (next_at_ < end_) return;
    next_at_ = first_ / kDepth * kDepth;
    tile_ += static_cast<int>(gridDim.x);
    find_row();
  }

  __device__ void write() const {
    if constexpr (kSuper) {
      const int p = part();
      const Lane256 lane = F::unpack(raw_[0], p);
      float scale[4], minimum[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scale[i] = lane.scales.d * static_cast<float>(lane.scale[i]);
        if (F::kHasMin) minimum[i] = lane.scales.m * static_cast<float>(lane.min[i]);
      }
      write_run(F::low_run(p) % kDepth, lane.low, scale, minimum, lane.offset);
      write_run(F::high_run(p) % kDepth, lane.high, scale + 2, minimum + 2, lane.offset);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const Lane32 lane = F::unpack(raw_[i], 0);
        const float scale[2] = {lane.scale.d, lane.scale.d}, minimum[2] = {lane.scale.m, lane.scale.m};
        write_run(64 * share() + 32 * i, lane.w, scale, minimum, lane.offset);
      }
    }
  }
  // 32 weights from element `first` of the stage on; scales and minima of 16 each.
  __device__ void write_run(int first, const Words& words, const float* scale, const float* minimum, int offset) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint2 low = four_halves(words.w[2 * i], scale[i / 2], minimum[i / 2], offset);
      const uint2 high = four_halves(words.w[2 * i + 1], scale[i / 2], minimum[i / 2], offset);
      const uint32_t to = stage_ + static_cast<uint32_t>(row() * kRowBytes + ((first / 8 + i) ^ (row() % 8)) * 16);
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                   :
                   : "r"(to), "r"(low.x), "r"(low.y), "r"(high.x), "r"(high.y)
                   : "memory");
    }
  }
  __device__ static uint2 four_halves(uint32_t bytes, float scale, float minimum, int offset) {
    constexpr bool kSigned = F::kDType == tensor::DType::Q8_0;
    if (kSigned) bytes ^= 0x80808080u;
    const float zero =
        8388608.0f + static_cast<float>(kSigned ? 128 : offset);  // 2^23: beside it a byte is the lowest of a float
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float q = __uint_as_float(__byte_perm(bytes, 0x4B000000u, 0x7440u | static_cast<uint32_t>(i))) - zero;
      v[i] = F::kHasMin ? num::fma(scale, q, minimum) : scale * q;
    }
    return {FastF16::rounded(v[0], v[1]), FastF16::rounded(v[2], v[3])};
  }

  const BlocksTask& task_;
  const uint32_t stage_;
  const int first_, end_;
  int tile_, next_at_, at_ = 0, window_ = 0, step_ = 0;  // what is loaded: tile_, at_
  int n_blocks_ = 0;                                     // of a row
  Parts parts_;
  int64_t block_ = 0;  // the row's first
  typename F::Raw raw_[kEach];
};

template <class X>
constexpr int kBlocksEach =
    X::kTiles > 1 ? 1 : 2;  // of threads on a multiprocessor: sums of many tokens want registers

template <class F, class X>
__global__ void __launch_bounds__(kThreads, kBlocksEach<X>)
    skinny_blocks_kernel(const __grid_constant__ BlocksTask task) {
  multiply_tiles<FastF16, X, BlockStages<F>>(task);
}

template <class F, class X>
void start_one(const BlocksTask& task, const Queue& queue) {
  take_decode_cut(skinny_blocks_kernel<F, X>);
  start<X, BlockStages<F>>(skinny_blocks_kernel<F, X>, task, kBlocksEach<X> * queue.n_multiprocessors, queue);
}
template <class F>
void start_for(const BlocksTask& task, int tile_tokens, const Queue& queue) {
  constexpr int kSteps = BlockStages<F>::kSteps;
  if (tile_tokens == 1) return start_one<F, OneColumn<FastF16, kSteps>>(task, queue);
  if (tile_tokens == 8) return start_one<F, ColumnsAhead<FastF16, 1, kSteps>>(task, queue);
  if (tile_tokens == 16) return start_one<F, ColumnsAhead<FastF16, 2, kSteps>>(task, queue);
  start_one<F, ColumnsAhead<FastF16, 4, kSteps>>(task, queue);
}

}  // namespace

void fast_skinny_blocks(std::span<const LinearTask> linears, int tile_tokens, const float* x, int64_t n_tokens,
                        const Queue& queue) {
  BlocksTask task;
  task.x = x;
  task.cols = static_cast<int32_t>(linears.front().w->cols);
  task.n_tokens = static_cast<int32_t>(n_tokens);
  for (const LinearTask& linear : linears)
    task.add(linear.w->parts, linear.w->rows, linear.bias, linear.y, linear.w->rows);
  if (task.n_tiles == 0 || n_tokens == 0) return;
  Formats::visit(Formats::find(linears.front().w->dtype), [&]<class F>(F) { start_for<F>(task, tile_tokens, queue); });
}

}  // namespace assay::backend::cuda
