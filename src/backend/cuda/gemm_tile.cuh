// Parts of the matrix-matrix kernels (gemm_256.cu, gemm_32.cu): a block of 16 warps computes kRows rows of weights times kColumns tokens,
// 256 elements of the inner dimension at a time. Weights lie unpacked in shared memory, a byte each; the integer products run on the tensor
// cores, which are exact; floats follow the contract in registers: a chain for the chunk at work and the sums of the tree that wait.
#pragma once

#include <cstdint>

#include "backend/cuda/linear.h"
#include "backend/cuda/warp.cuh"
#include "num/lanes.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

inline constexpr int kGemmThreads = 512;
inline constexpr int kRows = 128, kColumns = 64;  // of a tile: rows of weights, tokens
inline constexpr int kStage = 256;               // elements of a stage
inline constexpr int kStride = kStage + 16;      // bytes between rows in shared memory: no two of eight rows in the same banks
inline constexpr int kWarpRows = 32, kWarpTokens = 16;  // 4 x 4 warps
inline constexpr int kMTiles = 2, kNTiles = 2;   // of 16 rows and of 8 tokens
inline constexpr int kOutputs = kMTiles * kNTiles * 4;  // of a lane

struct GemmTask {
  Parts w;
  int32_t n_rows = 0, n_blocks = 0;
  quant::Activations x;
  int32_t n_tokens = 0;
  const float* bias = nullptr;
  float* y = nullptr;
};

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ inline void copy_16(void* to_shared, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to_shared)), "l"(from) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Four 8 x 16-byte matrices; each lane names a row of one.
__device__ inline void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ inline void load_matrices(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)));
}

// 16 rows x 8 tokens over 32 and over 16 elements; d = a * b.
__device__ inline void multiply_32(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}
__device__ inline void multiply_16(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(a0), "r"(a1), "r"(b), "r"(0));
}

// What the four ints of a lane in an m-tile and n-tile are: row + 8 * (i / 2), token + i % 2.
struct LanePlace {
  int warp_row, warp_token;  // of the warp in the tile
  int row, token;            // of the lane in the warp's first m-tile and n-tile
  __device__ LanePlace() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    constexpr int kAcross = kColumns / kWarpTokens;
    warp_row = warp / kAcross * kWarpRows;
    warp_token = warp % kAcross * kWarpTokens;
    row = warp_row + lane / 4;
    token = warp_token + 2 * (lane % 4);
  }
};

// Fragments of 32 elements from `at` on: the warp's rows of weights, and its tokens.
__device__ inline void load_rows(uint32_t (&a)[kMTiles][4], const int8_t* w, int warp_row, int at) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) load_matrices(a[m], w + (warp_row + 16 * m + lane % 16) * kStride + at + lane / 16 * 16);
}
__device__ inline void load_tokens(uint32_t (&b)[kNTiles / 2][4], const int8_t* x, int warp_token, int at) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kNTiles / 2; ++n) load_matrices(b[n], x + (warp_token + 16 * n + lane / 16 * 8 + lane % 8) * kStride + at + lane / 8 % 2 * 16);
}
// Of n-tile n: elements 0..15 (half 0) or 16..31.
__device__ inline uint32_t of_tile(const uint32_t (&b)[kNTiles / 2][4], int n, int half) { return b[n / 2][n % 2 * 2 + half]; }

// The 8 chunks of the contract: chains and the tree over them.
struct ChunkSums {
  float chain[kOutputs] = {};
  float one[kOutputs], two[kOutputs], four[kOutputs];  // sums of 1, 2, 4 chunks that wait for their neighbour
  int chunk = 0;

  __device__ void end_chunk() {
    if ((chunk & 1) == 0) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) one[i] = chain[i], chain[i] = 0.0f;
    } else if ((chunk & 2) == 0) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) two[i] = one[i] + chain[i], chain[i] = 0.0f;
    } else if ((chunk & 4) == 0) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) four[i] = two[i] + (one[i] + chain[i]), chain[i] = 0.0f;
    } else {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) chain[i] = four[i] + (two[i] + (one[i] + chain[i]));  // the whole
    }
    ++chunk;
  }
  // Ends every chunk that has no block from `block` on.
  __device__ void before_block(int block, int n_blocks) {
    while (chunk < 8 && block == quant::chunk_begin(chunk + 1, n_blocks)) end_chunk();
  }
};

bool gemm_256(const Matrix& w, const GemmTask& task, const Queue& queue);  // false: not one of its formats
bool gemm_32(const Matrix& w, const GemmTask& task, const Queue& queue);

// Writes the tile; rows and tokens beyond the matrix are left out.
__device__ inline void store_tile(const GemmTask& task, const ChunkSums& sums, const LanePlace& place, int first_row, int first_token) {
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) {
    const int m = i / (kNTiles * 4), n = i / 4 % kNTiles, part = i % 4;
    const int row = first_row + place.row + 16 * m + part / 2 * 8, token = first_token + place.token + 8 * n + part % 2;
    if (row >= task.n_rows || token >= task.n_tokens) continue;
    const float y = sums.chain[i];
    task.y[int64_t{token} * task.n_rows + row] = task.bias == nullptr ? y : y + task.bias[row];
  }
}

// The tokens' bytes of one stage on their way, a plane at a time: n_bytes of every row.
__device__ inline void copy_tokens(const int8_t* plane, const GemmTask& task, int first_token, int stage, int n_bytes, int8_t* x) {
  const int64_t k = task.x.k;
  const int per_row = n_bytes / 16;
  for (int i = threadIdx.x; i < kColumns * per_row; i += kGemmThreads) {
    const int token = min(first_token + i / per_row, task.n_tokens - 1);
    copy_16(x + i / per_row * kStride + i % per_row * 16, plane + token * k + stage * kStage + i % per_row * 16);
  }
}

}  // namespace assay::backend::cuda
