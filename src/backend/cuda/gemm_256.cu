// Matrix-matrix products of the formats with superblocks of 256 (gemm_tile.cuh). A stage is a superblock: its bytes are copied to shared
// memory two stages ahead, unpacked one stage ahead while the tensor cores work, and multiplied by the integer sub-scales after each group
// of 32 (or 16) elements; one float term a superblock.
#include "backend/cuda/gemm_tile.cuh"
#include "backend/cuda/gemv_formats.cuh"
#include "backend/cuda/launch.cuh"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

// What a format adds to its decode kernel: the parts that are copied, and weights as signed bytes.
struct GemmQ4_K : GemvQ4_K {
  static constexpr int kParts = 2, kRawBytes = 144;
  __device__ static constexpr int part_bytes(int p) { return p == 0 ? 16 : 128; }
  static constexpr bool kGroups16 = false;
  __device__ static uint32_t signed_bytes(uint32_t w) { return w; }
};
struct GemmQ5_K : GemvQ5_K {
  static constexpr int kParts = 3, kRawBytes = 176;
  __device__ static constexpr int part_bytes(int p) { return p == 0 ? 16 : p == 1 ? 32 : 128; }
  static constexpr bool kGroups16 = false;
  __device__ static uint32_t signed_bytes(uint32_t w) { return w; }
};
struct GemmQ6_K : GemvQ6_K {
  static constexpr int kParts = 3, kRawBytes = 208;  // d is loaded by itself: 2 bytes cannot be copied
  __device__ static constexpr int part_bytes(int p) { return p == 0 ? 128 : p == 1 ? 64 : 16; }
  static constexpr bool kGroups16 = true;
  __device__ static uint32_t signed_bytes(uint32_t w) {  // w - 32 in each byte: flip bit 5 and widen its sign
    const uint32_t flipped = w ^ 0x20202020u, sign = flipped & 0x20202020u;
    return flipped | (sign << 1) | (sign << 2);
  }
};

template <class Format, int kPlanes>
struct Stages {
  int8_t w[2][kRows * kStride];
  int8_t x[2][kPlanes][kColumns * kStride];
  uint8_t raw[2][kRows * Format::kRawBytes];
  int8_t scales[2][kRows * 16];
  int8_t minima[2][Format::kHasMin ? kRows * 16 : 16];            // of groups of 32; the upper 8 stay 0
  int8_t sums[2][Format::kHasMin ? kPlanes : 1][2][Format::kHasMin ? kColumns * 16 : 16];  // of groups of 32: low 7 bits, and the rest
  float2 d[2][kRows];
  float x_d[2][kColumns];
};

template <class Format, int kPlanes>
class Product {
 public:
  using Memory = Stages<Format, kPlanes>;
  __device__ Product(const GemmTask& task, Memory& memory, int first_row, int first_token)
      : task_(task), s_(memory), first_row_(first_row), first_token_(first_token) {}

  __device__ void run() {
    clear_padding();
    copy_raw(0);
    copy_x(0);
    commit_copies();
    wait_for_copies();
    __syncthreads();
    fetch(0);
    unpack(0);
    copy_raw(1);
    commit_copies();
    for (int stage = 0; stage < task_.n_blocks; ++stage) {
      wait_for_copies();
      __syncthreads();
      copy_x(stage + 1);
      copy_raw(stage + 2);
      commit_copies();
      fetch(stage + 1);
      sums_.before_block(stage, task_.n_blocks);
      multiply(stage & 1);
      unpack(stage + 1);
    }
    sums_.before_block(task_.n_blocks, task_.n_blocks);
    store_tile(task_, sums_, place_, first_row_, first_token_);
  }

 private:
  __device__ void clear_padding() {
    if constexpr (Format::kHasMin) {
      for (int i = threadIdx.x; i < kRows * 16; i += kGemmThreads) s_.minima[0][i] = s_.minima[1][i] = 0;
      for (int i = threadIdx.x; i < kColumns * 16; i += kGemmThreads) {
        for (int plane = 0; plane < kPlanes; ++plane) {
          for (int digit = 0; digit < 2; ++digit) s_.sums[0][plane][digit][i] = s_.sums[1][plane][digit][i] = 0;
        }
      }
    }
  }

  __device__ int64_t block_of(int row, int stage) const { return int64_t{min(first_row_ + row, task_.n_rows - 1)} * task_.n_blocks + stage; }

  __device__ void copy_raw(int stage) {
    if (stage >= task_.n_blocks) return;
    uint8_t* target = s_.raw[stage & 1];
#pragma unroll
    for (int p = 0; p < Format::kParts; ++p) {
      const int bytes = Format::part_bytes(p), pieces = bytes / 16;
      for (int i = threadIdx.x; i < kRows * pieces; i += kGemmThreads) {
        copy_16(target + i * 16, task_.w.base[p] + block_of(i / pieces, stage) * bytes + i % pieces * 16);
      }
      target += kRows * bytes;
    }
  }
  __device__ void copy_x(int stage) {
    if (stage >= task_.n_blocks) return;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      copy_tokens(plane == 0 ? task_.x.q : task_.x.l, task_, first_token_, stage, kStage, s_.x[stage & 1][plane]);
    }
  }

  // The parts of the raw stage as a matrix of kRows blocks.
  __device__ Parts raw_parts(int stage) const {
    Parts parts;
    const uint8_t* at = s_.raw[stage & 1];
#pragma unroll
    for (int p = 0; p < Format::kParts; ++p) {
      parts.base[p] = at;
      at += kRows * Format::part_bytes(p);
    }
    return parts;
  }

  __device__ void unpack(int stage) {
    if (stage >= task_.n_blocks) return;
    const int side = stage & 1;
    Parts parts = raw_parts(stage);
#pragma unroll
    for (int j = 0; j < kFetches; ++j) {
      const int i = threadIdx.x + j * kGemmThreads, row = i / 4, part = i % 4;
      if constexpr (Format::kGroups16) parts.base[3] = reinterpret_cast<const uint8_t*>(s_.raw[side]);  // any: replaced below
      auto raw = Format::template load<FromShared>(parts, row, part);
      if constexpr (Format::kGroups16) raw.d = fetched_.w_d[j];
      const Lane256 lane = Format::unpack(raw, part);
      store_run(s_.w[side] + row * kStride + Format::low_run(part), lane.low);
      store_run(s_.w[side] + row * kStride + Format::high_run(part), lane.high);
      int8_t* scales = s_.scales[side] + row * 16;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scales[Format::low_run(part) / 16 + half] = static_cast<int8_t>(lane.scale[half]);
        scales[Format::high_run(part) / 16 + half] = static_cast<int8_t>(lane.scale[2 + half]);
      }
      if constexpr (Format::kHasMin) {
        s_.minima[side][row * 16 + Format::low_run(part) / 32] = static_cast<int8_t>(lane.min[0]);
        s_.minima[side][row * 16 + Format::high_run(part) / 32] = static_cast<int8_t>(lane.min[2]);
      }
      if (part == 0) s_.d[side][row] = make_float2(lane.scales.d, lane.scales.m);
    }
    unpack_sums(stage);
  }

  __device__ static void store_run(int8_t* target, const Words& words) {
    uint32_t w[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) w[i] = Format::signed_bytes(words.w[i]);
    auto* out = reinterpret_cast<uint4*>(target);
    out[0] = make_uint4(w[0], w[1], w[2], w[3]);
    out[1] = make_uint4(w[4], w[5], w[6], w[7]);
  }

  // What the next unpack() needs from the device's memory, on its way while the tensor cores work.
  __device__ void fetch(int stage) {
    if (stage >= task_.n_blocks) return;
#pragma unroll
    for (int j = 0; j < kFetches; ++j) {
      const int i = threadIdx.x + j * kGemmThreads, token = i / 8, group = i % 8;
      const int64_t at = int64_t{min(first_token_ + token, task_.n_tokens - 1)} * task_.n_blocks + stage;
      if (group == 0) fetched_.x_d[j] = task_.x.d[at];
      if constexpr (Format::kHasMin) {
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane) {
          fetched_.sums[j][plane] = reinterpret_cast<const short2*>((plane == 0 ? task_.x.q_sums : task_.x.l_sums) + at * 16)[group];
        }
      }
      if constexpr (Format::kGroups16) fetched_.w_d[j] = reinterpret_cast<const uint16_t*>(task_.w.base[3])[block_of(i / 4, stage)];
    }
  }

  __device__ void unpack_sums(int stage) {
    const int side = stage & 1;
#pragma unroll
    for (int j = 0; j < kFetches; ++j) {
      const int i = threadIdx.x + j * kGemmThreads, token = i / 8, group = i % 8;
      if (group == 0) s_.x_d[side][token] = fetched_.x_d[j];
      if constexpr (Format::kHasMin) {
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane) {
          const int sum = fetched_.sums[j][plane].x + fetched_.sums[j][plane].y;  // at most 32 * 127: 13 bits with the sign
          s_.sums[side][plane][0][token * 16 + group] = static_cast<int8_t>(sum & 127);
          s_.sums[side][plane][1][token * 16 + group] = static_cast<int8_t>(sum >> 7);
        }
      }
    }
  }

  // The exact integers of one plane.
  __device__ void integers(int side, int plane, int32_t (&sum)[kOutputs]) const {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) sum[i] = 0;
    const int8_t* scales = s_.scales[side] + place_.row * 16;
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      uint32_t a[kMTiles][4], b[kNTiles / 2][4];
      load_rows(a, s_.w[side], place_.warp_row, 32 * group);
      load_tokens(b, s_.x[side][plane], place_.warp_token, 32 * group);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        const int8_t* low = scales + 16 * m * 16 + 2 * group;  // of the lane's row; 8 rows further those of the lower half
        const int8_t* high = low + 8 * 16;
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
          int32_t* out = sum + (m * kNTiles + n) * 4;
          int32_t d[4];
          if constexpr (Format::kGroups16) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              multiply_16(d, a[m][2 * half], a[m][2 * half + 1], of_tile(b, n, half));
              out[0] += low[half] * d[0], out[1] += low[half] * d[1], out[2] += high[half] * d[2], out[3] += high[half] * d[3];
            }
          } else {
            multiply_32(d, a[m], of_tile(b, n, 0), of_tile(b, n, 1));
            out[0] += low[0] * d[0], out[1] += low[0] * d[1], out[2] += high[0] * d[2], out[3] += high[0] * d[3];
          }
        }
      }
    }
  }

  // The minima times the sums of the activations, in two digits of 7 bits.
  __device__ void minima(int side, int plane, int32_t (&sum)[kOutputs]) const {
    const int lane = threadIdx.x % 32;
    uint32_t b[4];  // both digits of the first n-tile and the second
    load_matrices(b, s_.sums[side][plane][lane / 16] + (place_.warp_token + lane % 16) * 16);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      uint32_t a[2];
      load_matrices(a, s_.minima[side] + (place_.warp_row + 16 * m + lane % 16) * 16);
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        int32_t low[4], high[4];
        multiply_16(low, a[0], a[1], b[n]);
        multiply_16(high, a[0], a[1], b[kNTiles + n]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[(m * kNTiles + n) * 4 + i] = low[i] + 128 * high[i];
      }
    }
  }

  __device__ void multiply(int side) {
    float f[kOutputs], g[Format::kHasMin ? kOutputs : 1];
    int32_t sum[kOutputs];
    integers(side, 0, sum);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) f[i] = static_cast<float>(sum[i]);
    if constexpr (kPlanes == 2) {
      integers(side, 1, sum);
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) f[i] = num::fma(0x1p-7f, static_cast<float>(sum[i]), f[i]);  // quant::join_planes
    }
    if constexpr (Format::kHasMin) {
      minima(side, 0, sum);
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) g[i] = static_cast<float>(sum[i]);
      if constexpr (kPlanes == 2) {
        minima(side, 1, sum);
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) g[i] = num::fma(0x1p-7f, static_cast<float>(sum[i]), g[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const int m = i / (kNTiles * 4), n = i / 4 % kNTiles, part = i % 4;
      const float2 d = s_.d[side][place_.row + 16 * m + part / 2 * 8];
      const float x_d = s_.x_d[side][place_.token + 8 * n + part % 2];
      sums_.chain[i] = num::fma(x_d, quant::block_term(Format::kHasMin, {d.x, d.y}, f[i], Format::kHasMin ? g[i] : 0.0f), sums_.chain[i]);
    }
  }

  const GemmTask& task_;
  Memory& s_;
  const int first_row_, first_token_;
  static constexpr int kFetches = kColumns * 8 / kGemmThreads;
  static_assert(kFetches == kRows * 4 / kGemmThreads);
  struct {
    float x_d[kFetches];
    short2 sums[kFetches][kPlanes];
    uint16_t w_d[kFetches];
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

bool gemm_256(const Matrix& w, const GemmTask& task, const Queue& queue) {
  return try_format<GemmQ4_K>(w, task, queue) || try_format<GemmQ5_K>(w, task, queue) || try_format<GemmQ6_K>(w, task, queue);
}

}  // namespace assay::backend::cuda
