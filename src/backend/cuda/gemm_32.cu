// Matrix-matrix products of the formats with blocks of 32 (gemm_tile.cuh): a stage is 8 blocks, with one float term a block. Bytes are copied
// two stages ahead, unpacked one stage ahead.
#include "backend/cuda/gemm_tile.cuh"
#include "backend/cuda/gemv_formats.cuh"
#include "backend/cuda/launch.cuh"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

constexpr int kBlocks = 8;  // of a stage

// What a format adds to its decode kernel: the bytes of a block's integers, and weights as signed bytes.
struct GemmQ4_0 : GemvQ4_0 {
  static constexpr int kIntegerBytes = 16;
  using Scale = uint16_t;
  __device__ static Scale& scale_of(Raw& raw) { return raw.d; }
  __device__ static uint32_t signed_bytes(uint32_t w) {  // w - 8 in each byte: flip bit 3 and widen its sign
    const uint32_t flipped = w ^ 0x08080808u;
    return flipped | ((flipped & 0x08080808u) * 30);
  }
};
struct GemmQ4_1 : GemvQ4_1 {
  static constexpr int kIntegerBytes = 16;
  using Scale = uint32_t;
  __device__ static Scale& scale_of(Raw& raw) { return raw.dm; }
  __device__ static uint32_t signed_bytes(uint32_t w) { return w; }
};
struct GemmQ8_0 : GemvQ8_0 {
  static constexpr int kIntegerBytes = 32;
  using Scale = uint16_t;
  __device__ static Scale& scale_of(Raw& raw) { return raw.d; }
  __device__ static uint32_t signed_bytes(uint32_t w) { return w; }
};

template <class Format, int kPlanes>
struct Stages {
  int8_t w[2][kRows * kStride];
  int8_t x[2][kPlanes][kColumns * kStride];
  uint8_t raw[2][kRows * kBlocks * Format::kIntegerBytes];
  float d[2][kRows * kBlocks];
  float m[2][Format::kHasMin ? kRows * kBlocks : 1];
  float x_d[2][kColumns * kBlocks];
  float g[2][Format::kHasMin ? kColumns * kBlocks : 1];  // sums of the activations, both planes joined
};

template <class Format, int kPlanes>
class Product {
 public:
  using Memory = Stages<Format, kPlanes>;
  __device__ Product(const GemmTask& task, Memory& memory, int first_row, int first_token)
      : task_(task), s_(memory), first_row_(first_row), first_token_(first_token), n_stages_((task.n_blocks + kBlocks - 1) / kBlocks) {}

  __device__ void run() {
    copy_raw(0);
    copy_x(0);
    commit_copies();
    wait_for_copies();
    __syncthreads();
    fetch(0);
    unpack(0);
    copy_raw(1);
    commit_copies();
    for (int stage = 0; stage < n_stages_; ++stage) {
      wait_for_copies();
      __syncthreads();
      copy_x(stage + 1);
      copy_raw(stage + 2);
      commit_copies();
      fetch(stage + 1);
      multiply(stage);
      unpack(stage + 1);
    }
    sums_.before_block(task_.n_blocks, task_.n_blocks);
    store_tile(task_, sums_, place_, first_row_, first_token_);
  }

 private:
  __device__ int blocks_of(int stage) const { return min(kBlocks, task_.n_blocks - stage * kBlocks); }
  __device__ int64_t block_of(int row, int stage) const {
    return int64_t{min(first_row_ + row, task_.n_rows - 1)} * task_.n_blocks + stage * kBlocks;
  }

  __device__ void copy_raw(int stage) {
    if (stage >= n_stages_) return;
    const int pieces = blocks_of(stage) * Format::kIntegerBytes / 16;
    uint8_t* target = s_.raw[stage & 1];
    for (int i = threadIdx.x; i < kRows * pieces; i += kGemmThreads) {
      const int row = i / pieces, at = i % pieces * 16;
      copy_16(target + row * kBlocks * Format::kIntegerBytes + at, task_.w.base[1] + block_of(row, stage) * Format::kIntegerBytes + at);
    }
  }
  __device__ void copy_x(int stage) {
    if (stage >= n_stages_) return;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      copy_tokens(plane == 0 ? task_.x.q : task_.x.l, task_, first_token_, stage, blocks_of(stage) * 32, s_.x[stage & 1][plane]);
    }
  }

  // What the next unpack() needs from the device's memory, on its way while the tensor cores work.
  __device__ void fetch(int stage) {
    if (stage >= n_stages_) return;
    const int n = blocks_of(stage);
#pragma unroll
    for (int j = 0; j < kRowFetches; ++j) {
      const int i = threadIdx.x + j * kGemmThreads, row = i / kBlocks, block = min(i % kBlocks, n - 1);
      fetched_.scale[j] = reinterpret_cast<const Scale*>(task_.w.base[0])[block_of(row, stage) + block];
    }
#pragma unroll
    for (int j = 0; j < kTokenFetches; ++j) {
      const int i = threadIdx.x + j * kGemmThreads, token = i / kBlocks, block = min(i % kBlocks, n - 1);
      const int64_t at = int64_t{min(first_token_ + token, task_.n_tokens - 1)} * task_.n_blocks + stage * kBlocks + block;
      fetched_.x_d[j] = task_.x.d[at];
      if constexpr (Format::kHasMin) {
        fetched_.high[j] = task_.x.q_sums[at];
        if constexpr (kPlanes == 2) fetched_.low[j] = task_.x.l_sums[at];
      }
    }
  }

  __device__ void unpack(int stage) {
    if (stage >= n_stages_) return;
    const int side = stage & 1, n = blocks_of(stage);
#pragma unroll
    for (int j = 0; j < kRowFetches; ++j) {
      const int i = threadIdx.x + j * kGemmThreads, row = i / kBlocks, block = i % kBlocks;
      if (block >= n) continue;
      Parts parts;
      parts.base[0] = parts.base[1] = s_.raw[side];  // the first is replaced below
      auto raw = Format::template load<FromShared>(parts, i, 0);
      Format::scale_of(raw) = fetched_.scale[j];
      const Lane32 lane = Format::unpack(raw, 0);
      uint32_t w[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) w[k] = Format::signed_bytes(lane.w.w[k]);
      auto* out = reinterpret_cast<uint4*>(s_.w[side] + row * kStride + block * 32);
      out[0] = make_uint4(w[0], w[1], w[2], w[3]);
      out[1] = make_uint4(w[4], w[5], w[6], w[7]);
      s_.d[side][i] = lane.scale.d;
      if constexpr (Format::kHasMin) s_.m[side][i] = lane.scale.m;
    }
#pragma unroll
    for (int j = 0; j < kTokenFetches; ++j) {
      const int i = threadIdx.x + j * kGemmThreads;
      s_.x_d[side][i] = fetched_.x_d[j];
      if constexpr (Format::kHasMin) {
        s_.g[side][i] = kPlanes == 2 ? quant::join_planes(fetched_.high[j], fetched_.low[j]) : static_cast<float>(fetched_.high[j]);
      }
    }
  }

  __device__ void multiply(int stage) {
    const int side = stage & 1, n_blocks = blocks_of(stage);
#pragma unroll 1
    for (int block = 0; block < n_blocks; ++block) {
      sums_.before_block(stage * kBlocks + block, task_.n_blocks);
      uint32_t a[kMTiles][4], b[kPlanes][kNTiles / 2][4];
      load_rows(a, s_.w[side], place_.warp_row, 32 * block);
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) load_tokens(b[plane], s_.x[side][plane], place_.warp_token, 32 * block);
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        const int token = place_.token + 8 * n;
        const float x_d[2] = {s_.x_d[side][token * kBlocks + block], s_.x_d[side][(token + 1) * kBlocks + block]};
        float g[2] = {};
        if constexpr (Format::kHasMin) g[0] = s_.g[side][token * kBlocks + block], g[1] = s_.g[side][(token + 1) * kBlocks + block];
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
          int32_t high[4], low[4];
          multiply_32(high, a[m], of_tile(b[0], n, 0), of_tile(b[0], n, 1));
          if constexpr (kPlanes == 2) multiply_32(low, a[m], of_tile(b[1], n, 0), of_tile(b[1], n, 1));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = (place_.row + 16 * m + i / 2 * 8) * kBlocks + block;
            const quant::BlockScales scales{s_.d[side][row], Format::kHasMin ? s_.m[side][row] : 0.0f};
            const float f = kPlanes == 2 ? quant::join_planes(high[i], low[i]) : static_cast<float>(high[i]);
            float& chain = sums_.chain[(m * kNTiles + n) * 4 + i];
            chain = num::fma(x_d[i % 2], quant::block_term(Format::kHasMin, scales, f, g[i % 2]), chain);
          }
        }
      }
    }
  }

  const GemmTask& task_;
  Memory& s_;
  const int first_row_, first_token_, n_stages_;
  static constexpr int kRowFetches = kRows * kBlocks / kGemmThreads, kTokenFetches = kColumns * kBlocks / kGemmThreads;
  using Scale = typename Format::Scale;
  struct {
    Scale scale[kRowFetches];
    float x_d[kTokenFetches];
    int16_t high[kTokenFetches], low[kTokenFetches];
  } fetched_;
  LanePlace place_;
  ChunkSums sums_;
};

// grid: tiles of tokens, tiles of rows, so that neighbours share their weights.
template <class Format, int kPlanes>
__global__ void __launch_bounds__(kGemmThreads, 1) gemm_kernel(const __grid_constant__ GemmTask task) {
  extern __shared__ __align__(16) uint8_t memory[];
  let_next_start();
  wait_for_previous();
  Product<Format, kPlanes> product(task, *reinterpret_cast<Stages<Format, kPlanes>*>(memory), static_cast<int>(blockIdx.y) * kRows,
                                   static_cast<int>(blockIdx.x) * kColumns);
  product.run();
}

template <class Format, int kPlanes>
void start(const GemmTask& task, const Queue& queue) {
  constexpr size_t kBytes = sizeof(Stages<Format, kPlanes>);
  cudaFuncSetAttribute(gemm_kernel<Format, kPlanes>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  const dim3 grid(static_cast<unsigned>((task.n_tokens + kColumns - 1) / kColumns),
                  static_cast<unsigned>((task.n_rows + kRows - 1) / kRows));
  launch(queue, gemm_kernel<Format, kPlanes>, grid, kGemmThreads, kBytes, task);
}

template <class Format>
bool try_format(const Matrix& w, const GemmTask& task, const Queue& queue) {
  if (w.dtype != Format::kDType) return false;
  task.x.planes == 2 ? start<Format, 2>(task, queue) : start<Format, 1>(task, queue);
  return true;
}

}  // namespace

bool gemm_32(const Matrix& w, const GemmTask& task, const Queue& queue) {
  return try_format<GemmQ4_0>(w, task, queue) || try_format<GemmQ4_1>(w, task, queue) || try_format<GemmQ8_0>(w, task, queue);
}

bool linear_gemm(const LinearTask& linear, const quant::Activations& x, int64_t n_tokens, const Queue& queue) {
  const Matrix& w = *linear.w;
  if (w.parts.n < 2 || w.rows > INT32_MAX / 2 || n_tokens > INT32_MAX / 2) return false;
  if (n_tokens == 0) return true;
  const GemmTask task{w.parts, static_cast<int32_t>(w.rows), static_cast<int32_t>(w.cols / x.block()), x, static_cast<int32_t>(n_tokens),
                      linear.bias, linear.y};
  return x.kind == quant::Activation::a256 ? gemm_256(w, task, queue) : gemm_32(w, task, queue);
}

}  // namespace assay::backend::cuda
