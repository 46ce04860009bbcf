// See float_tiles.h. The contract folds 32 lanes of a chunk by 16, 8, 4, 2, 1 and the 8 chunks by a tree: together one
// binary tree over 256 chains, if the lanes of a chunk come in the order of their bits reversed (0, 16, 8, 24, 4 ..).
// So K is packed chunk by chunk, lane by lane in that order, the blocks of a lane one after the other: a thread makes
// chain after chain of its 8 x 8 outputs in registers, four chains are added there, the sums of four and eight lanes
// wait in shared memory, those of sixteen and of chunks in the second-level cache.
#include <algorithm>

#include "backend/cuda/linear/float_row.cuh"
#include "backend/cuda/tiles/float_tiles.h"
#include "backend/cuda/tiles/mma_steps.cuh"
#include "backend/cuda/tiles/wgmma_steps.cuh"
#include "num/lanes.h"
#include "quant/activations.h"

namespace assay::backend::cuda {
namespace {

constexpr int kRows = static_cast<int>(kFloatTileRows), kTokens = static_cast<int>(kFloatTileTokens);
constexpr int kFewTokens = static_cast<int>(kFloatTileTokensFew);
constexpr int kThreads = 128;  // four warps of 64 rows x half of the tokens
constexpr int kSide = 8;       // rows of a thread's outputs
constexpr int kStepsMax = 32;  // elements of K of a stage: what lets two blocks of threads share a multiprocessor
constexpr int kPackThreads = 256, kPackRows = 32, kPackCols = 64;

// Where element j of a row of n blocks of 32 lies in the packed order.
__device__ int64_t packed_place(int block, int lane, int n) {
  const int chunk = (8 * (block + 1) + n - 1) / n - 1;
  const int begin = static_cast<int>(quant::chunk_begin(chunk, n)),
            end = static_cast<int>(quant::chunk_begin(chunk + 1, n));
  const int turn = static_cast<int>(__brev(static_cast<unsigned>(lane)) >> 27);
  return 32 * begin + turn * (end - begin) + block - begin;
}

__device__ void load_piece(const float* p, float (&out)[8]) {
  const float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
  out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}
template <class W>
__device__ void load_piece(const W* p, float (&out)[8]) {
  widen_8<W>(*reinterpret_cast<const uint4*>(p), out);
}

// grid: 64 elements of K, 32 rows. Rows of [n_rows, cols] to tiles [cols, kTile]; rows that are not there are zeros.
template <class W, int kTile>
__global__ void __launch_bounds__(kPackThreads) pack_kernel(const W* rows, int64_t n_rows, int cols, float* out) {
  __shared__ float turned[kPackCols][kPackRows + 1];
  const int t = static_cast<int>(threadIdx.x), n_blocks = cols / 32;
  const int64_t row = int64_t{blockIdx.y} * kPackRows + t / 8;
  const int j = static_cast<int>(blockIdx.x) * kPackCols + t % 8 * 8;
  float piece[8] = {};
  if (row < n_rows && j < cols) load_piece(rows + row * cols + j, piece);
#pragma unroll
  for (int i = 0; i < 8; ++i) turned[t % 8 * 8 + i][t / 8] = piece[i];
  __syncthreads();
  const int64_t place = int64_t{blockIdx.y} * kPackRows + t % 32;
  if (place >= (n_rows + kTile - 1) / kTile * kTile) return;
  float* tile = out + place / kTile * kTile * cols + place % kTile;
#pragma unroll
  for (int i = t / 32; i < kPackCols; i += kPackThreads / 32) {
    const int k = static_cast<int>(blockIdx.x) * kPackCols + i;
    if (k < cols) tile[packed_place(k / 32, k % 32, n_blocks) * kTile] = turned[i][t % 32];
  }
}

template <class W, int kTile>
void pack(const W* rows, int64_t n_rows, int64_t cols, float* out, cudaStream_t stream) {
  const int64_t n_padded = (n_rows + kTile - 1) / kTile * kTile;
  const dim3 grid(static_cast<unsigned>((cols + kPackCols - 1) / kPackCols),
                  static_cast<unsigned>((n_padded + kPackRows - 1) / kPackRows));
  pack_kernel<W, kTile><<<grid, kPackThreads, 0, stream>>>(rows, n_rows, static_cast<int>(cols), out);
}

struct TileRun {
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_width = 0;
  int32_t n_rows = 0, first_tile = 0;
};
struct TileTask {
  const float* w = nullptr;
  const float* x = nullptr;
  float4* sums = nullptr;
  int32_t n_blocks = 0, n_steps = 0,
          n_chains = 0;  // blocks of 32 of a row; elements of a stage; its chains: 4, 2, 1 or a part of one
  int32_t n_row_tiles = 0, n_token_tiles = 0, n_tokens = 0, n_runs = 0;
  TileRun run[8];
};

// A thread makes 8 rows x 8 tokens of a tile of 64 tokens, 8 x 2 of one of 16.
template <int kTileTokens>
class FloatTile {
 public:
  static constexpr int kTokensEach = kTileTokens / 8;
  using Sums = float[kSide][kTokensEach];  // rows, tokens
  static constexpr int kQuads = kSide * kTokensEach / 4, kLevelQuads = kQuads * kThreads;
  static constexpr int kSharedLevels = 2,
                       kLevels = 3;  // of the sums of four lanes and more; three more of those of chunks
  struct Shared {
    float4 pending[kSharedLevels][kQuads][kThreads];
    float w[2][kStepsMax][kRows];
    float x[2][kStepsMax][kTileTokens];
    float beyond[kTileTokens];     // read ahead, used by no one
    uint64_t arrived[2], read[2];  // barriers: the stage is there; all warps have read it
  };

  __device__ FloatTile(const TileTask& task, Shared& shared)
      : task_(task), s_(shared), warp_(static_cast<int>(threadIdx.x) / 32), lane_(static_cast<int>(threadIdx.x) % 32),
        row_(warp_ % 2 * 64 + ((lane_ & 1) | lane_ / 8 * 2) * 4),
        token_(warp_ / 2 * (kTileTokens / 2) + lane_ / 2 % 4 * kSpan),
        lane_sums_(task.sums + int64_t{blockIdx.x} * kBlockQuads),
        chunk_sums_(lane_sums_ + (kLevels - kSharedLevels) * kLevelQuads) {
    static_assert(kBlockQuads <= kFloatSums / 8);
    if (threadIdx.x == 0) {
      for (int side = 0; side < 2; ++side) {
        make_barrier(shared_address(&s_.arrived[side]), 1);
        make_barrier(shared_address(&s_.read[side]), kThreads / 32);
      }
      barriers_made();
    }
    __syncthreads();
  }

  __device__ void run(int tile) {
    const int row_tile = tile / task_.n_token_tiles, token_tile = tile % task_.n_token_tiles,
              cols = 32 * task_.n_blocks;
    w_ahead_ = task_.w + int64_t{row_tile} * kRows * cols;
    x_ahead_ = task_.x + int64_t{token_tile} * kTileTokens * cols;
    chunk_ahead_ = turn_ahead_ = 0;
    left_ahead_ = length(0) * task_.n_chains;
    load_ahead();
    Sums a;
    for (int chunk = 0; chunk < 8; ++chunk) {
      sum_chunk(length(chunk), a);
      int level = 0;
      for (; (chunk >> level & 1) != 0; ++level) add_waiting(chunk_sums_ + level * kLevelQuads, a);
      if (chunk != 7) let_wait(a, chunk_sums_ + level * kLevelQuads);
    }
    write(row_tile, token_tile, a);
  }

 private:
  static constexpr int kSpan = kTokensEach == 8 ? 4 : 2;  // neighbouring tokens of a thread
  static constexpr int kBlockQuads = (3 + kLevels - kSharedLevels) * kLevelQuads;
  struct Step {
    float4 w[2];
    float x[kTokensEach];
  };

  __device__ int length(int chunk) const {
    return static_cast<int>(quant::chunk_begin(chunk + 1, task_.n_blocks) - quant::chunk_begin(chunk, task_.n_blocks));
  }

  // Begins the copy of the next stage, as soon as all warps have read what lies in its place.
  __device__ void load_ahead() {
    if (chunk_ahead_ == 8) return;
    const int n = min(task_.n_steps, left_ahead_);
    if (warp_ == 0) {
      const int side = static_cast<int>(stage_ahead_ & 1);
      wait_phase(shared_address(&s_.read[side]), (stage_ahead_ >> 1 & 1) ^ 1);
      if (lane_ == 0) {
        const uint32_t barrier = shared_address(&s_.arrived[side]);
        arrive_with_bytes(barrier, n * (kRows + kTileTokens) * sizeof(float));
        copy_bytes(shared_address(s_.w[side]), w_ahead_, n * kRows * sizeof(float), barrier);
        copy_bytes(shared_address(s_.x[side]), x_ahead_, n * kTileTokens * sizeof(float), barrier);
      }
      __syncwarp();
    }
    ++stage_ahead_;
    w_ahead_ += n * kRows;
    x_ahead_ += n * kTileTokens;
    left_ahead_ -= n;
    if (left_ahead_ > 0) return;
    turn_ahead_ = (turn_ahead_ + task_.n_chains) & 31;
    if (turn_ahead_ == 0) ++chunk_ahead_;
    left_ahead_ = length(chunk_ahead_) * task_.n_chains;
  }

  // Volatile, so that a load stays one step ahead of its use: the compiler would put it after the branch that may make
  // it idle.
  __device__ static float4 load_four(uint32_t address) {
    float4 v;
    asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address));
    return v;
  }
  __device__ static Step step_at(uint32_t w, uint32_t x) {
    Step s{{load_four(w), load_four(w + 32 * sizeof(float))}, {}};
    if constexpr (kTokensEach == 8) {
      const float4 a = load_four(x), b = load_four(x + 16 * sizeof(float));
      s.x[0] = a.x, s.x[1] = a.y, s.x[2] = a.z, s.x[3] = a.w, s.x[4] = b.x, s.x[5] = b.y, s.x[6] = b.z, s.x[7] = b.w;
    } else {
      asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(s.x[0]), "=f"(s.x[1]) : "r"(x));
    }
    return s;
  }
  template <bool kFirst>
  __device__ static void multiply(const Step& s, Sums& sum) {
    const float w[8] = {s.w[0].x, s.w[0].y, s.w[0].z, s.w[0].w, s.w[1].x, s.w[1].y, s.w[1].z, s.w[1].w};
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
#pragma unroll
      for (int j = 0; j < kTokensEach; ++j) sum[i][j] = num::fma(w[i], s.x[j], kFirst ? 0.0f : sum[i][j]);
    }
  }

  __device__ void begin_stage() {
    const int side = static_cast<int>(stage_ & 1);
    load_ahead();
    wait_phase(shared_address(&s_.arrived[side]), stage_ >> 1 & 1);
    w_at_ = shared_address(s_.w[side][0] + row_);
    x_at_ = shared_address(s_.x[side][0] + token_);
  }
  __device__ void end_stage() {
    __syncwarp();
    if (lane_ == 0) arrive(shared_address(&s_.read[stage_ & 1]));
    ++stage_;
  }

  // n steps of the stage, each loaded one ahead.
  template <bool kFirst>
  __device__ void multiply_steps(int n, Sums& sum) {
    constexpr uint32_t kNextW = kRows * sizeof(float), kNextX = kTileTokens * sizeof(float);
    uint32_t w = w_at_, x = x_at_;
    w_at_ += n * kNextW, x_at_ += n * kNextX;
    Step even = step_at(w, x), odd = step_at(w += kNextW, x += kNextX);
    multiply<kFirst>(even, sum);
    while (--n > 0) {
      even = step_at(w += kNextW, x += kNextX);
      multiply<false>(odd, sum);
      if (--n == 0) return;
      odd = step_at(w += kNextW, x += kNextX);
      multiply<false>(even, sum);
    }
  }
  // Chain i of four: a part of a stage, or one or several stages.
  __device__ void sum_chain(int i, int length, Sums& sum) {
    if ((i & (task_.n_chains - 1)) == 0) begin_stage();
    multiply_steps<true>(min(task_.n_steps, length), sum);
    for (int left = length - task_.n_steps; left > 0; left -= task_.n_steps) {
      end_stage();
      begin_stage();
      multiply_steps<false>(min(task_.n_steps, left), sum);
    }
    if (((i + 1) & (task_.n_chains - 1)) == 0) end_stage();
  }
  __device__ static void add(const Sums& x, Sums& sum) {
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
#pragma unroll
      for (int j = 0; j < kTokensEach; ++j) sum[i][j] = sum[i][j] + x[i][j];
    }
  }
  __device__ static void let_wait(const Sums& sum, float4* at) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const float* four = &sum[0][0] + 4 * i;
      at[i * kThreads + threadIdx.x] = {four[0], four[1], four[2], four[3]};
    }
  }
  __device__ static void add_waiting(const float4* at, Sums& sum) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const float4 x = at[i * kThreads + threadIdx.x];
      float* four = &sum[0][0] + 4 * i;
      four[0] = x.x + four[0], four[1] = x.y + four[1], four[2] = x.z + four[2], four[3] = x.w + four[3];
    }
  }

  __device__ void sum_chunk(int length, Sums& a) {
    Sums b, c;
#pragma unroll 1
    for (int four = 0; four < 8; ++four) {
      sum_chain(0, length, a);
      sum_chain(1, length, b);
      add(b, a);
      sum_chain(2, length, b);
      sum_chain(3, length, c);
      add(c, b);
      add(b, a);
      int level = 0;
      for (; (four >> level & 1) != 0; ++level)
        level < kSharedLevels ? add_waiting(s_.pending[level][0], a) : add_waiting(lane_sums_, a);
      if (four != 7) level < kSharedLevels ? let_wait(a, s_.pending[level][0]) : let_wait(a, lane_sums_);
    }
  }

  __device__ void write(int row_tile, int token_tile, const Sums& sum) const {
    int i_run = 0;
    while (i_run + 1 < task_.n_runs && row_tile >= task_.run[i_run + 1].first_tile) ++i_run;
    const TileRun& run = task_.run[i_run];
    const int first = (row_tile - run.first_tile) * kRows + row_;
#pragma unroll
    for (int j = 0; j < kTokensEach; ++j) {
      const int token = token_tile * kTileTokens + token_ + j / 4 * 16 + j % 4;
      if (token >= task_.n_tokens) continue;
      float* y = run.y + token * run.y_width;
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
        const int row = first + i / 4 * 32 + i % 4;
        if (row < run.n_rows) y[row] = run.bias == nullptr ? sum[i][j] : sum[i][j] + run.bias[row];
      }
    }
  }

  const TileTask& task_;
  Shared& s_;
  const int warp_, lane_, row_,
      token_;  // of the tile; the thread's rows are 4 from row_ on and 4 from row_ + 32 on, 8 tokens likewise by 16
  float4 *const lane_sums_, *const chunk_sums_;
  const float *w_ahead_ = nullptr, *x_ahead_ = nullptr;
  int chunk_ahead_ = 0, turn_ahead_ = 0, left_ahead_ = 0;
  uint32_t stage_ = 0, stage_ahead_ = 0, w_at_ = 0, x_at_ = 0;
};

template <int kTileTokens>
__global__ void __launch_bounds__(kThreads, 2) float_tile_kernel(const __grid_constant__ TileTask task) {
  extern __shared__ __align__(128) std::byte memory[];
  FloatTile<kTileTokens> tile(task, *reinterpret_cast<typename FloatTile<kTileTokens>::Shared*>(memory));
  for (int i = static_cast<int>(blockIdx.x); i < task.n_row_tiles * task.n_token_tiles;
       i += static_cast<int>(gridDim.x))
    tile.run(i);
}

template <int kTileTokens>
void launch_tiles(TileTask& task, const Queue& queue) {
  task.n_token_tiles = (task.n_tokens + kTileTokens - 1) / kTileTokens;
  constexpr auto kBytes = static_cast<int>(sizeof(typename FloatTile<kTileTokens>::Shared));
  static_assert(2 * (kBytes + 1024) <= 228 * 1024, "two blocks of threads share a multiprocessor");
  const auto kernel = float_tile_kernel<kTileTokens>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const int n_blocks = std::min(2 * queue.n_multiprocessors, task.n_row_tiles * task.n_token_tiles);
  kernel<<<static_cast<unsigned>(n_blocks), kThreads, kBytes, queue.stream>>>(task);
}

}  // namespace

FloatTiles::FloatTiles(const FloatScratch& scratch, int tile_tokens, int64_t cols, const float* x, int64_t n_tokens,
                       const Queue& queue)
    : scratch_(scratch), cols_(cols), n_tokens_(n_tokens), x_(x), tile_tokens_(tile_tokens), queue_(queue) {}

void FloatTiles::add(FloatRows rows) {
  const auto row_bytes = static_cast<int64_t>(cols_ * tensor::traits(rows.dtype).block_bytes);
  while (rows.n_rows > 0) {
    if (n_tiles_ == n_tiles_max() || n_runs_ == kRunsMax) finish();
    FloatRows some = rows;
    some.n_rows = std::min(rows.n_rows, (n_tiles_max() - n_tiles_) * kFloatTileRows);
    float* to = scratch_.w + n_tiles_ * kFloatTileRows * cols_;
    if (rows.dtype == tensor::DType::F32)
      pack<float, kRows>(static_cast<const float*>(some.w), some.n_rows, cols_, to, queue_.stream);
    if (rows.dtype == tensor::DType::F16)
      pack<__half, kRows>(static_cast<const __half*>(some.w), some.n_rows, cols_, to, queue_.stream);
    if (rows.dtype == tensor::DType::BF16)
      pack<Bf16, kRows>(static_cast<const Bf16*>(some.w), some.n_rows, cols_, to, queue_.stream);
    first_tile_[n_runs_] = n_tiles_;
    runs_[n_runs_++] = some;
    n_tiles_ += (some.n_rows + kFloatTileRows - 1) / kFloatTileRows;
    rows.n_rows -= some.n_rows;
    rows.w = static_cast<const std::byte*>(rows.w) + some.n_rows * row_bytes;
    rows.bias = rows.bias == nullptr ? nullptr : rows.bias + some.n_rows;
    rows.y += some.n_rows;
  }
}

void FloatTiles::finish() {
  if (n_runs_ == 0) return;
  TileTask task;
  task.w = scratch_.w;
  task.x = scratch_.x;
  task.sums = reinterpret_cast<float4*>(scratch_.sums);
  task.n_blocks = static_cast<int32_t>(cols_ / 32);
  const int longest = (task.n_blocks + 7) / 8, n_stages = (longest + kStepsMax - 1) / kStepsMax;
  task.n_chains = task.n_blocks % 8 != 0     ? 1
                  : 4 * longest <= kStepsMax ? 4
                  : 2 * longest <= kStepsMax ? 2
                                             : 1;  // chunks of one length
  task.n_steps = task.n_chains > 1 ? task.n_chains * longest : (longest + n_stages - 1) / n_stages;
  task.n_row_tiles = static_cast<int32_t>(n_tiles_);
  task.n_tokens = static_cast<int32_t>(n_tokens_);
  for (; task.n_runs < n_runs_; ++task.n_runs) {
    const FloatRows& run = runs_[task.n_runs];
    task.run[task.n_runs] = {run.bias, run.y, run.y_width, static_cast<int32_t>(run.n_rows),
                             static_cast<int32_t>(first_tile_[task.n_runs])};
  }
  if (!x_is_packed_) {
    tile_tokens_ == kTokens ? pack<float, kTokens>(x_, n_tokens_, cols_, scratch_.x, queue_.stream)
                            : pack<float, kFewTokens>(x_, n_tokens_, cols_, scratch_.x, queue_.stream);
  }
  x_is_packed_ = true;
  tile_tokens_ == kTokens ? launch_tiles<kTokens>(task, queue_) : launch_tiles<kFewTokens>(task, queue_);
  n_runs_ = 0;
  n_tiles_ = 0;
}

}  // namespace assay::backend::cuda
