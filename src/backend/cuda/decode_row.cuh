// Decode of one token: the row that a matrix product reads, made by every block of threads for itself in shared memory. Making it again is
// cheaper than one more kernel, and all of it is exact or in the contract's order, so every copy has the same bits. Block 0 also writes to
// memory what other kernels or an observer read.
#pragma once

#include "backend/cuda/decode.h"
#include "backend/cuda/warp.cuh"
#include "num/lanes.h"
#include "quant/activations.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

inline constexpr int kDecodeWarps = 16;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;

struct Eight {  // neighbouring elements, a lane's part of the row at a time
  float v[8];
};
__device__ inline Eight load_eight(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ inline void store_eight(float* p, const Eight& x) {
  *reinterpret_cast<float4*>(p) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  *reinterpret_cast<float4*>(p + 4) = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

// The chunk of the contract that block i of n lies in.
__device__ inline int chunk_of(int i, int n) { return (8 * (i + 1) + n - 1) / n - 1; }

// 8 integers as 8 bytes.
__device__ inline uint2 packed(const float (&q)[8]) {
  uint32_t w[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    w[i] = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) w[i] |= (static_cast<uint32_t>(static_cast<int>(q[4 * i + j])) & 255u) << (8 * j);
  }
  return {w[0], w[1]};
}

// What a lane makes of its 8 elements of a block with this scale; sum: of the planes in one word, each within 16 bits.
struct EightIntegers {
  uint2 q, l;
  int sum;
};
template <int kPlanes>
__device__ inline EightIntegers quantise_eight(const Eight& x, float r) {
  EightIntegers out{};
  float first[8], second[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    first[i] = r == 0.0f ? 0.0f : quant::first_plane(x.v[i], r);
    second[i] = r == 0.0f || kPlanes == 1 ? 0.0f : quant::second_plane(x.v[i], r, first[i]);
    out.sum += static_cast<int>(first[i]) * 65536 + static_cast<int>(second[i]);
  }
  out.q = packed(first);
  if constexpr (kPlanes == 2) out.l = packed(second);
  return out;
}
__device__ inline int16_t low_sum(int sums) { return static_cast<int16_t>(sums & 0xFFFF); }
__device__ inline int16_t high_sum(int sums) { return static_cast<int16_t>((sums - low_sum(sums)) / 65536); }

__device__ inline uint32_t magnitude(const Eight& x) {
  uint32_t amax = 0;
#pragma unroll
  for (const float v : x.v) amax = max(amax, __float_as_uint(v) & 0x7FFFFFFFu);
  return amax;
}

// Rows as the lanes of a product read them, 16 bytes at a time, eight neighbouring lanes from eight different groups of banks. `n` counts
// blocks of the row; piece j of a block is its j-th 16 bytes.
template <int kPlanes_>
struct RowA256 {
  static constexpr int kPlanes = kPlanes_, kBlock = 256;
  uint8_t* q;        // [kPlanes][256 n]
  int16_t* sums_16;  // [kPlanes][16 n]
  int16_t* sums_32;  // [kPlanes][8 n]
  float* d;          // [n]
  int n;

  static __host__ __device__ constexpr int bytes(int n_blocks) { return n_blocks * (kPlanes * (256 + 32 + 16) + 4); }
  __device__ RowA256(uint8_t* memory, int width) : n(width / 256) {
    q = memory;
    sums_32 = reinterpret_cast<int16_t*>(q + kPlanes * 256 * n);
    sums_16 = sums_32 + kPlanes * 8 * n;
    d = reinterpret_cast<float*>(sums_16 + kPlanes * 16 * n);
  }
  // Lane `part` of four takes pieces 4 part .. 4 part + 3 (Q4_K, Q5_K), or 8 (part / 2) + 2 (part % 2) + {0, 1, 4, 5} (Q6_K).
  static __device__ int place(int j, int chunk) {
    const int j0 = j & 1, j1 = (j >> 1) & 1, j2 = (j >> 2) & 1, j3 = j >> 3;
    return 16 * ((j1 << 3) | (j3 << 2) | ((j2 ^ j1) << 1) | (j0 ^ (chunk & 1)));
  }
  // Elements 256 i + 8 lane .. of the row, by a whole warp.
  __device__ void put(const Eight& x, int i, bool) const {
    const int lane = threadIdx.x % 32;
    const quant::BlockScale scale = quant::block_scale(warp_max(magnitude(x)));
    const EightIntegers e = quantise_eight<kPlanes>(x, scale.r);
    const int sum_16 = e.sum + __shfl_xor_sync(kWholeWarp, e.sum, 1), sum_32 = sum_16 + __shfl_xor_sync(kWholeWarp, sum_16, 2);
    const int at = 256 * i + place(lane / 2, chunk_of(i, n)) + 8 * (lane & 1);
    *reinterpret_cast<uint2*>(q + at) = e.q;
    if (kPlanes == 2) *reinterpret_cast<uint2*>(q + 256 * n + at) = e.l;
    if (lane == 0) d[i] = scale.d;
    if (lane % 2 == 0) {
      sums_16[16 * i + lane / 2] = high_sum(sum_16);
      if (kPlanes == 2) sums_16[16 * (n + i) + lane / 2] = low_sum(sum_16);
    }
    if (lane % 4 == 0) {
      sums_32[8 * i + lane / 4] = high_sum(sum_32);
      if (kPlanes == 2) sums_32[8 * (n + i) + lane / 4] = low_sum(sum_32);
    }
  }
};

template <int kPlanes_>
struct RowA32 {
  static constexpr int kPlanes = kPlanes_, kBlock = 32;
  uint8_t* q;     // [kPlanes][32 n]
  float* d;       // [n]
  int16_t* sums;  // [kPlanes][n]
  int n;

  static __host__ __device__ constexpr int bytes(int n_blocks) { return n_blocks * (kPlanes * (32 + 2) + 4); }
  __device__ RowA32(uint8_t* memory, int width) : n(width / 32) {
    q = memory;
    d = reinterpret_cast<float*>(q + kPlanes * 32 * n);
    sums = reinterpret_cast<int16_t*>(d + n);
  }
  static __device__ int place(int half, int chunk) { return 16 * (half ^ (chunk & 1)); }
  __device__ void put(const Eight& x, int i, bool inside) const {
    const int lane = threadIdx.x % 32, block = 8 * i + lane / 4;
    uint32_t amax = magnitude(x);
    amax = max(amax, __shfl_xor_sync(kWholeWarp, amax, 1));
    amax = max(amax, __shfl_xor_sync(kWholeWarp, amax, 2));
    const quant::BlockScale scale = quant::block_scale(amax);
    const EightIntegers e = quantise_eight<kPlanes>(x, scale.r);
    int sum = e.sum + __shfl_xor_sync(kWholeWarp, e.sum, 1);
    sum = sum + __shfl_xor_sync(kWholeWarp, sum, 2);
    if (!inside) return;
    const int at = 32 * block + place(lane % 4 / 2, chunk_of(block, n)) + 8 * (lane & 1);
    *reinterpret_cast<uint2*>(q + at) = e.q;
    if (kPlanes == 2) *reinterpret_cast<uint2*>(q + 32 * n + at) = e.l;
    if (lane % 4 != 0) return;
    d[block] = scale.d;
    sums[block] = high_sum(sum);
    if (kPlanes == 2) sums[n + block] = low_sum(sum);
  }
};

struct RowF32 {
  static constexpr int kPlanes = 1, kBlock = 32;
  float* x;  // [32 n]
  int n;

  static __host__ __device__ constexpr int bytes(int n_blocks) { return n_blocks * 128; }
  __device__ RowF32(uint8_t* memory, int width) : x(reinterpret_cast<float*>(memory)), n(width / 32) {}
  // Piece j of 8 of a block.
  static __device__ int place(int j, int chunk) { return 4 * (j ^ (chunk & 1)); }
  __device__ void put(const Eight& e, int i, bool inside) const {
    if (!inside) return;
    const int lane = threadIdx.x % 32, block = 8 * i + lane / 4, chunk = chunk_of(block, n);
    float* at = x + 32 * block;
    *reinterpret_cast<float4*>(at + place(lane % 4 * 2, chunk)) = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
    *reinterpret_cast<float4*>(at + place(lane % 4 * 2 + 1, chunk)) = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
  }
};

// 1 / sqrt(mean of squares + eps) of a row in shared memory, for all threads of the block. Warp 0 is Lanes32.
__device__ inline float inverse_rms_of(const float* row, int d, float eps, float* broadcast) {
  if (threadIdx.x < 32) {
    float sum = 0.0f;
#pragma unroll 16
    for (int j = threadIdx.x; j < d; j += 32) sum = num::fma(row[j], row[j], sum);
    sum = fold_lanes(sum);
    if (threadIdx.x == 0) *broadcast = 1.0f / sqrtf(sum / static_cast<float>(d) + eps);
  }
  __syncthreads();
  return *broadcast;
}

// Makes the row of `source` in x; `floats`: d floats of shared memory, only where there is a norm. All threads call it, after the wait for
// the kernel before; w_ahead: the norm's weights of the warp's first 256 elements.
template <class Row>
__device__ void make_row(const DecodeSource& source, const Eight& w_ahead, float* floats, const Row& x) {
  __shared__ float factors[2];
  const int d = source.d, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool writes = blockIdx.x == 0;
  constexpr Eight kZeros{};
  if (source.w == nullptr) {
    for (int i = warp; 256 * i < d; i += kDecodeWarps) {
      const int j = 256 * i + 8 * lane;
      x.put(j < d ? load_eight(source.a + j) : kZeros, i, j < d);
    }
    __syncthreads();
    return;
  }
  const bool has_pre = source.pre_w != nullptr;
  for (int j = 256 * warp + 8 * lane; j < d; j += 8 * kDecodeThreads) {
    Eight v = load_eight((has_pre ? source.b : source.a) + j);
    if (!has_pre && source.b != nullptr) {
      const Eight b = load_eight(source.b + j);
#pragma unroll
      for (int e = 0; e < 8; ++e) v.v[e] = v.v[e] + b.v[e];
    }
    store_eight(floats + j, v);
    if (writes && !has_pre && source.sum != nullptr) store_eight(source.sum + j, v);
  }
  __syncthreads();
  if (has_pre) {
    const float r = inverse_rms_of(floats, d, source.pre_eps, &factors[0]);
    for (int j = 256 * warp + 8 * lane; j < d; j += 8 * kDecodeThreads) {
      Eight v = load_eight(floats + j);
      const Eight w = load_eight(source.pre_w + j), a = load_eight(source.a + j);
#pragma unroll
      for (int e = 0; e < 8; ++e) v.v[e] = (v.v[e] * r) * w.v[e];
      if (writes && source.pre_y != nullptr) store_eight(source.pre_y + j, v);
#pragma unroll
      for (int e = 0; e < 8; ++e) v.v[e] = a.v[e] + v.v[e];
      store_eight(floats + j, v);
      if (writes && source.sum != nullptr) store_eight(source.sum + j, v);
    }
    __syncthreads();
  }
  const float r = inverse_rms_of(floats, d, source.eps, &factors[1]);
  for (int i = warp; 256 * i < d; i += kDecodeWarps) {
    const int j = 256 * i + 8 * lane;
    Eight v = kZeros;
    if (j < d) {
      const Eight w = i == warp ? w_ahead : load_eight(source.w + j);
      v = load_eight(floats + j);
#pragma unroll
      for (int e = 0; e < 8; ++e) v.v[e] = (v.v[e] * r) * w.v[e];
      if (writes && source.y != nullptr) store_eight(source.y + j, v);
    }
    x.put(v, i, j < d);
  }
  __syncthreads();
}

}  // namespace assay::backend::cuda
