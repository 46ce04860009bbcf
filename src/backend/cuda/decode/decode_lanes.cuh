// What the decode kernels share, however their weights come into shared memory (decode_ring.cuh, decode_steps.cuh): how
// a lane reads them there, the products of bytes, the tree over an output's chunks, and writing what a unit of work has
// made.
#pragma once

#include "backend/cuda/decode/decode_places.cuh"
#include "backend/cuda/decode/gemv_formats.cuh"
#include "backend/cuda/rows/gather.cuh"
#include "backend/cuda/rows/usual_gate.cuh"
#include "num/math.h"
#include "ops/rows/activation.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

__device__ inline void fetch_16(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
}

__device__ inline uint4 piece_of(const uint8_t* p) { return *reinterpret_cast<const uint4*>(p); }
__device__ inline uint32_t word_of(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ inline uint32_t half_word_of(const uint8_t* p) { return *reinterpret_cast<const uint16_t*>(p); }

// Adds the products of 16 weights, bytes without sign.
__device__ inline int32_t dot_bytes(uint4 w, uint32_t mask, uint4 q, int32_t sum) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w.x & mask), "r"(q.x));
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w.y & mask), "r"(q.y));
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w.z & mask), "r"(q.z));
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w.w & mask), "r"(q.w));
  return sum;
}
inline constexpr uint32_t kLowNibbles = 0x0F0F0F0Fu,
                          kHighNibbles = 0xF0F0F0F0u;  // high ones stay where they are: their dot is 16 times as large

template <int kPlanes>
__device__ inline float joined(const int32_t (&i)[kPlanes]) {
  if constexpr (kPlanes == 2) return quant::join_planes(i[0], i[1]);
  return static_cast<float>(i[0]);
}

// The tree over an output's chunks, of which each lane of four rows has one; every lane has its row's.
__device__ inline float chunks_sum(float c, int n_chunks) {
#pragma unroll
  for (int width = 1; width <= 4; width *= 2) {
    const float sum = c + __shfl_xor_sync(kWholeWarp, c, 4 * width);
    if (width < n_chunks) c = sum;
  }
  return c;
}

// What a gate makes of the products of a unit's kRows rows, in the lanes of its first half.
template <int kRows>
__device__ inline float gated(ops::ActivationFunction activation, float y) {
  const float up = __shfl_down_sync(kWholeWarp, y, kRows / 2);
  return usual_activation(activation, y) * up;
}

// Writes the product y of a lane's row of a matrix, or gates, adds and sends it, as the gate says. The whole warp calls
// it. part: which of a unit's kRows rows it is, with a gate those of the second half being the other matrix's; chunk:
// the lane's; mine: whether the lane has a product.
template <int kRows, bool kOfShard, class Linear>
__device__ void write_product(const DecodeGate& gate, const Linear& to, int row, int part, int chunk, bool mine,
                              float residual, float y) {
  if (const SumsTask& sums = gate.sums; kOfShard && sums.n_shards > 0) {
    if (mine) send_sum(sums, row * sums.n_shards + (chunk * sums.n_shards) / 8, y);
    return;
  }
  if (mine && to.bias != nullptr) y = y + to.bias[row];
  if (mine && to.y != nullptr) to.y[row] = y;
  if (mine && gate.residual != nullptr) gate.sum[row] = residual + y;
  if (gate.y != nullptr) {
    y = gated<kRows>(gate.activation, y);
    if (!mine || part >= kRows / 2) return;
    gate.y[row] = y;
  }
  if (kOfShard && mine) send_column(gate.send, row, y);
}

}  // namespace assay::backend::cuda
