// Float weights by Lanes32 in 8 chunks for a few tokens (see linear.h, linear_float). A block of threads makes 16 rows
// of up to 8 tokens, a warp one of the 8 chunks of them all, a lane of the warp a lane of the contract: so a weight is
// loaded and widened once for all tokens. Register i of a lane belongs to the output whose number is i with some bits
// turned over, other bits in every lane: at each step of the fold a lane then keeps the lower half of its registers and
// hands on the upper half, without asking which lane it is.
//
//   device memory   weights [row][column]                  activations [token][column]
//                      |  copies of 16 bytes that run on their own: two blocks of 32 of 16 rows and of the tokens
//                      v
//   shared memory   ring of warp 0 | of warp 1 | .. | of warp 7       a warp has a chunk of every row; 2 or 4 stages
//                      v
//   registers       lane j: element j of each block, for all 16 rows x tokens: a chain for each output
//                      v  shuffles 16, 8, 4, 2, 1: a lane keeps half of its outputs at each, a 32nd at the end
//   shared memory   chunk_sums [of this tile, of the one before][8 chunks][tokens][16 rows]
//                      v  a thread an output: the tree over the chunks, then the bias
//   device memory   y [token][row]
#include <algorithm>

#include "backend/cuda/linear/float_row.cuh"
#include "backend/cuda/linear/float_skinny.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/tiles/mma_steps.cuh"
#include "num/lanes.h"
#include "quant/activations.h"

namespace assay::backend::cuda {
namespace {

constexpr int kRows = 16, kChunks = 8;
constexpr int kStageBlocks = 2;  // blocks of 32 of a chunk that are copied at a time

__device__ float widened(float x) { return x; }

// A lane keeps half of its outputs and adds what the lane kWidth away has of them.
template <int kLeft, int kWidth, int kOutputs>
__device__ void fold_half(float (&sum)[kOutputs]) {
#pragma unroll
  for (int i = 0; i < kLeft; ++i) sum[i] = sum[i] + __shfl_xor_sync(kWholeWarp, sum[i + kLeft], kWidth);
}

struct SkinnyTask {
  const void* w = nullptr;
  const float* x = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_width = 0;
  int32_t n_rows = 0, cols = 0, n_tokens = 0;
  int32_t n_row_tiles = 0, n_tiles = 0;
};

// A warp's chunk of tile after tile, through its own ring in shared memory; kDepth stages are there or on their way.
template <class W, int kTokens, int kDepth>
class ChunkWalk {
  static constexpr int kBlockBytes = 32 * sizeof(W), kRowBytes = kStageBlocks * kBlockBytes,
                       kTokenBytes = kStageBlocks * 128;
  static constexpr int kPitch = kRowBytes + 16;  // what the lanes read of 16 rows lies in different banks

 public:
  static constexpr int kOutputs = kRows * kTokens, kStageBytes = kRows * kPitch + kTokens * kTokenBytes;

  __device__ ChunkWalk(const SkinnyTask& task, uint8_t* memory)
      : task_(task), lane_(static_cast<int>(threadIdx.x) % 32),
        memory_(memory + threadIdx.x / 32 * (kDepth * kStageBytes)) {
    const int chunk = static_cast<int>(threadIdx.x) / 32, n_blocks = task.cols / 32;
    begin_ = block_ahead_ = static_cast<int>(quant::chunk_begin(chunk, n_blocks));
    end_ = static_cast<int>(quant::chunk_begin(chunk + 1, n_blocks));
    tile_ahead_ = begin_ < end_ ? static_cast<int>(blockIdx.x) : task.n_tiles;
#pragma unroll
    for (int r = 0; r < kRows; ++r) row_[r] = (r ^ (lane_ / 2)) * kPitch + lane_ * static_cast<int>(sizeof(W));
#pragma unroll 1
    for (int i = 0; i + 1 < kDepth; ++i) fetch();
  }

  // The chains of the next tile.
  __device__ void take_tile(float (&sum)[kOutputs]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) sum[i] = 0.0f;
#pragma unroll 1
    for (int block = begin_; block < end_; block += kStageBlocks) {
      wait_copies<kDepth - 2>();
      __syncwarp();
      fetch();
      const uint8_t* stage = memory_ + slot_ * kStageBytes;
      slot_ = slot_ + 1 == kDepth ? 0 : slot_ + 1;
#pragma unroll
      for (int i = 0; i < kStageBlocks; ++i) {
        if (block + i < end_) multiply(stage, i, sum);
      }
    }
  }

 private:
  __device__ void multiply(const uint8_t* stage, int block, float (&sum)[kOutputs]) const {
    const uint8_t* x = stage + kRows * kPitch + lane_ * 4;
    const int turned_token = lane_ % 2 * (kTokens / 2);
    W loaded[kRows];
    float tokens[kTokens];
#pragma unroll
    for (int r = 0; r < kRows; ++r) loaded[r] = *reinterpret_cast<const W*>(stage + row_[r] + block * kBlockBytes);
#pragma unroll
    for (int t = 0; t < kTokens; ++t)
      tokens[t] = *reinterpret_cast<const float*>(x + (t ^ turned_token) * kTokenBytes + block * 128);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float weight = widened(loaded[r]);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) sum[r * kTokens + t] = num::fma(weight, tokens[t], sum[r * kTokens + t]);
    }
  }

  // n runs of the stage's blocks, each of kBytes; from(run): where it begins.
  template <int kBytes, int kTo, class From>
  __device__ void fetch_runs(int n, uint32_t to, From from) const {
    constexpr int kPieces = kBytes / 16;
#pragma unroll
    for (int i = lane_; i < n * kPieces; i += 32) {
      const int run = i / kPieces, piece = i % kPieces;
      const bool inside = block_ahead_ + piece / (kPieces / kStageBlocks) < end_;
      copy_16(to + static_cast<uint32_t>(run * kTo + piece * 16), inside ? from(run) + piece * 16 : from(run), inside);
    }
  }
  __device__ void fetch() {
    if (tile_ahead_ < task_.n_tiles) {
      const int row_0 = tile_ahead_ % task_.n_row_tiles * kRows, token_0 = tile_ahead_ / task_.n_row_tiles * kTokens;
      const uint32_t to = shared_address(memory_) + static_cast<uint32_t>(slot_ahead_ * kStageBytes);
      fetch_runs<kRowBytes, kPitch>(kRows, to, [&](int r) {
        const int64_t row = min(row_0 + r, task_.n_rows - 1);
        return reinterpret_cast<const uint8_t*>(static_cast<const W*>(task_.w) + row * task_.cols + 32 * block_ahead_);
      });
      fetch_runs<kTokenBytes, kTokenBytes>(kTokens, to + kRows * kPitch, [&](int t) {
        const int64_t token = min(token_0 + t, task_.n_tokens - 1);
        return reinterpret_cast<const uint8_t*>(task_.x + token * task_.cols + 32 * block_ahead_);
      });
      block_ahead_ += kStageBlocks;
      if (block_ahead_ >= end_) block_ahead_ = begin_, tile_ahead_ += static_cast<int>(gridDim.x);
    }
    end_copies();
    slot_ahead_ = slot_ahead_ + 1 == kDepth ? 0 : slot_ahead_ + 1;
  }

  const SkinnyTask& task_;
  const int lane_;
  uint8_t* const memory_;
  int begin_, end_;  // of the chunk
  int row_[kRows];   // of a stage: where the lane's weights are
  int tile_ahead_, block_ahead_, slot_ = 0, slot_ahead_ = 0;
};

// A tile: 16 rows of kTokens tokens.
template <class W, int kTokens, int kDepth>
__global__ void __launch_bounds__(32 * kChunks, 1) skinny_kernel(const __grid_constant__ SkinnyTask task) {
  constexpr int kOutputs = kRows * kTokens, kKept = kOutputs / 32;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ float chunk_sums[2][kChunks][kTokens][kRows];  // of this tile and of the one before
  const int chunk = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int turned_row = lane / 2, turned_token = lane % 2 * (kTokens / 2);
  ChunkWalk<W, kTokens, kDepth> walk(task, memory);
  int side = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < task.n_tiles; tile += static_cast<int>(gridDim.x), side ^= 1) {
    float sum[kOutputs];
    walk.take_tile(sum);
    fold_half<kOutputs / 2, 16>(sum);
    fold_half<kOutputs / 4, 8>(sum);
    fold_half<kOutputs / 8, 4>(sum);
    fold_half<kOutputs / 16, 2>(sum);
    fold_half<kOutputs / 32, 1>(sum);
#pragma unroll
    for (int i = 0; i < kKept; ++i) chunk_sums[side][chunk][i ^ turned_token][turned_row] = sum[i];
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x) / kRows, r = static_cast<int>(threadIdx.x) % kRows;
    const int row = tile % task.n_row_tiles * kRows + r, token = tile / task.n_row_tiles * kTokens + t;
    if (t >= kTokens || token >= task.n_tokens || row >= task.n_rows) continue;
    float c[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) c[i] = chunk_sums[side][i][t][r];
    const float all = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
    task.y[token * task.y_width + row] = task.bias == nullptr ? all : all + task.bias[row];
  }
}

template <class W, int kTokens, int kDepth>
void start(const FloatRows& rows, int64_t cols, const float* x, int64_t n_tokens, const Queue& queue) {
  constexpr size_t kBytes = kChunks * kDepth * ChunkWalk<W, kTokens, kDepth>::kStageBytes;
  static_assert(kBytes == FloatForm{kTokens, kDepth}.ring_bytes(sizeof(W)));
  require(allow_shared(skinny_kernel<W, kTokens, kDepth>, kBytes), "shared memory");
  SkinnyTask task{rows.w,
                  x,
                  rows.bias,
                  rows.y,
                  rows.y_width,
                  static_cast<int32_t>(rows.n_rows),
                  static_cast<int32_t>(cols),
                  static_cast<int32_t>(n_tokens)};
  task.n_row_tiles = (task.n_rows + kRows - 1) / kRows;
  task.n_tiles = task.n_row_tiles * ((task.n_tokens + kTokens - 1) / kTokens);
  const int n_blocks = std::min(task.n_tiles, queue.n_multiprocessors);
  skinny_kernel<W, kTokens, kDepth><<<static_cast<unsigned>(n_blocks), 32 * kChunks, kBytes, queue.stream>>>(task);
}
template <class W>
void start_for(const FloatRows& rows, const FloatForm& form, int64_t cols, const float* x, int64_t n_tokens,
               const Queue& queue) {
  const auto run = [&](auto start_form) { start_form(rows, cols, x, n_tokens, queue); };
  if (form.tokens == 2) return form.depth == 4 ? run(start<W, 2, 4>) : run(start<W, 2, 2>);
  if (form.tokens == 4) return form.depth == 4 ? run(start<W, 4, 4>) : run(start<W, 4, 2>);
  form.depth == 4 ? run(start<W, 8, 4>) : run(start<W, 8, 2>);
}

}  // namespace

void linear_float_skinny(const FloatRows& rows, const FloatForm& form, int64_t cols, const float* x, int64_t n_tokens,
                         const Queue& queue) {
  if (rows.dtype == tensor::DType::F32) start_for<float>(rows, form, cols, x, n_tokens, queue);
  if (rows.dtype == tensor::DType::F16) start_for<__half>(rows, form, cols, x, n_tokens, queue);
  if (rows.dtype == tensor::DType::BF16) start_for<Bf16>(rows, form, cols, x, n_tokens, queue);
}

}  // namespace assay::backend::cuda
