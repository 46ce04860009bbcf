// What the cache holds, as floats: pieces of keys, elements of values.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "num/lanes.h"
#include "ops/plan/executor.h"

namespace assay::backend::cuda {

// One of the two halves, one of the four signed bytes of a word.
__device__ inline float half_of(uint32_t word, int i) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(i == 0 ? word & 0xFFFFu : word >> 16)));
}
__device__ inline float byte_of(uint32_t word, int i) {
  return static_cast<float>(static_cast<int8_t>(word >> (8 * i) & 255u));
}

template <ops::CacheType type>
struct Piece;  // 16 bytes of a key as floats
template <>
struct Piece<ops::CacheType::f32> {
  static constexpr int kElements = 4;
  __device__ static void widen(uint4 bytes, float, float (&out)[4]) {
    out[0] = __uint_as_float(bytes.x), out[1] = __uint_as_float(bytes.y), out[2] = __uint_as_float(bytes.z),
    out[3] = __uint_as_float(bytes.w);
  }
};
template <>
struct Piece<ops::CacheType::f16> {
  static constexpr int kElements = 8;
  __device__ static void widen(uint4 bytes, float, float (&out)[8]) {
    const uint32_t w[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = half_of(w[i / 2], i % 2);
  }
};
template <>
struct Piece<ops::CacheType::q8_0> {
  static constexpr int kElements = 16;
  __device__ static void widen(uint4 bytes, float scale, float (&out)[16]) {
    const uint32_t w[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 16; ++i) out[i] = scale * byte_of(w[i / 4], i % 4);
  }
};

// Adds the products of a piece of a key with kHeads queries to their chains; q: the piece's elements of the first, the
// next head_dim further.
template <int kHeads, int kElements>
__device__ inline void add_products(const float (&key)[kElements], const float* q, int head_dim,
                                    float (&score)[kHeads]) {
#pragma unroll
  for (int g = 0; g < kHeads; ++g) {
#pragma unroll
    for (int e = 0; e < kElements; e += 4) {
      const float4 four = *reinterpret_cast<const float4*>(q + g * head_dim + e);
      score[g] = num::fma(four.x, key[e], score[g]);
      score[g] = num::fma(four.y, key[e + 1], score[g]);
      score[g] = num::fma(four.z, key[e + 2], score[g]);
      score[g] = num::fma(four.w, key[e + 3], score[g]);
    }
  }
}

template <ops::CacheType type>
__device__ inline float value_at(const std::byte* row, int64_t head_dim, int64_t j) {
  if constexpr (type == ops::CacheType::f32) return reinterpret_cast<const float*>(row)[j];
  if constexpr (type == ops::CacheType::f16) return __half2float(reinterpret_cast<const __half*>(row)[j]);
  if constexpr (type == ops::CacheType::q8_0) {
    const float scale = __half2float(reinterpret_cast<const __half*>(row + head_dim)[j / 32]);
    return scale * static_cast<float>(reinterpret_cast<const int8_t*>(row)[j]);
  }
}

// Columns j .. j + kColumns of a row of values; j a multiple of kColumns.
template <ops::CacheType type, int kColumns>
__device__ inline void columns_of(const std::byte* row, int head_dim, int j, float (&out)[kColumns]) {
  if constexpr (kColumns == 2 && type == ops::CacheType::f16) {
    const float2 pair = __half22float2(reinterpret_cast<const __half2*>(row)[j / 2]);
    out[0] = pair.x, out[1] = pair.y;
  } else {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) out[c] = value_at<type>(row, head_dim, j + c);
  }
}

}  // namespace assay::backend::cuda
