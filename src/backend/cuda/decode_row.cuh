// Decode of one token: the row that a matrix product reads, made by every block of threads for itself in shared memory. Making it again is
// cheaper than one more kernel, and all of it is exact or in the contract's order, so every copy has the same bits. Block 0 also writes to
// memory what other kernels or an observer read. Where it lies: decode_places.cuh.
#pragma once

#include "backend/cuda/decode.h"
#include "backend/cuda/warp.cuh"
#include "num/lanes.h"
#include "quant/activations.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

__device__ inline int decode_warps() { return static_cast<int>(blockDim.x) / 32; }

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
    for (int i = warp; 256 * i < d; i += decode_warps()) {
      const int j = 256 * i + 8 * lane;
      x.put(j < d ? load_eight(source.a + j) : kZeros, i, j < d);
    }
    __syncthreads();
    return;
  }
  const bool has_pre = source.pre_w != nullptr;
  for (int j = 256 * warp + 8 * lane; j < d; j += 8 * static_cast<int>(blockDim.x)) {
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
    for (int j = 256 * warp + 8 * lane; j < d; j += 8 * static_cast<int>(blockDim.x)) {
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
  for (int i = warp; 256 * i < d; i += decode_warps()) {
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
