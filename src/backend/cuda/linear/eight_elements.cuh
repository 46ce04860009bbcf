// Eight neighbouring elements of a row of a matrix, decoded by one thread, so that neighbours read and write what lies
// side by side. Of the formats that are cut into parts and of floats. Values as quant/block.h and quant/float.h decode
// them.
#pragma once

#include "backend/cuda/decode/gemv_formats.cuh"
#include "backend/cuda/linear/format_list.cuh"
#include "num/f16.h"

namespace assay::backend::cuda {

struct EightElements {
  float v[8];
};
__device__ inline uint64_t eight_bytes(const uint8_t* p) {
  const uint2 x = *reinterpret_cast<const uint2*>(p);
  return uint64_t{x.y} << 32 | x.x;
}
__device__ inline uint64_t nibbles_of(uint64_t bytes, int which) {
  return bytes >> (4 * which) & 0x0F0F0F0F0F0F0F0Full;
}
__device__ inline int byte_of(uint64_t bytes, int i) { return static_cast<int>(bytes >> (8 * i) & 255u); }
__device__ inline float half_at(const uint8_t* p) { return low_half(*reinterpret_cast<const uint16_t*>(p)); }

// Of each format: elements j .. j + 7 of a block; floats have blocks of eight.
struct EightQ4_0 {
  static constexpr tensor::DType kDType = tensor::DType::Q4_0;
  static constexpr int kBlock = 32;
  __device__ static EightElements of(const Parts& parts, int64_t block, int j) {
    const uint64_t q = nibbles_of(eight_bytes(parts.base[1] + block * 16 + j % 16), j / 16);
    const float d = half_at(parts.base[0] + block * 2);
    EightElements x;
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = d * static_cast<float>(byte_of(q, i) - 8);
    return x;
  }
};
struct EightQ4_1 {
  static constexpr tensor::DType kDType = tensor::DType::Q4_1;
  static constexpr int kBlock = 32;
  __device__ static EightElements of(const Parts& parts, int64_t block, int j) {
    const uint64_t q = nibbles_of(eight_bytes(parts.base[1] + block * 16 + j % 16), j / 16);
    const uint32_t scales = *reinterpret_cast<const uint32_t*>(parts.base[0] + block * 4);
    EightElements x;
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = low_half(scales) * static_cast<float>(byte_of(q, i)) + high_half(scales);
    return x;
  }
};
struct EightQ8_0 {
  static constexpr tensor::DType kDType = tensor::DType::Q8_0;
  static constexpr int kBlock = 32;
  __device__ static EightElements of(const Parts& parts, int64_t block, int j) {
    const uint64_t q = eight_bytes(parts.base[1] + block * 32 + j);
    const float d = half_at(parts.base[0] + block * 2);
    EightElements x;
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = d * static_cast<float>(static_cast<int8_t>(byte_of(q, i)));
    return x;
  }
};

// Runs of 32 have a scale and a minimum, two runs 32 bytes of nibbles.
template <bool kFifth>
struct EightNibblesK {
  static constexpr int kBlock = 256;
  __device__ static EightElements of(const Parts& parts, int64_t block, int j) {
    const int run = j / 32, at = j % 32;
    uint64_t q = nibbles_of(eight_bytes(parts.base[kFifth ? 2 : 1] + block * 128 + run / 2 * 32 + at), run % 2);
    if (kFifth) q |= (eight_bytes(parts.base[1] + block * 32 + at) >> run & 0x0101010101010101ull) << 4;
    Lane256 lane;
    k_scales(*part_of(parts, 0, block, 16), run / 2, lane);
    const float scale = lane.scales.d * static_cast<float>(run % 2 == 0 ? lane.scale[0] : lane.scale[2]);
    const float minimum = lane.scales.m * static_cast<float>(run % 2 == 0 ? lane.min[0] : lane.min[2]);
    EightElements x;
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = scale * static_cast<float>(byte_of(q, i)) + minimum;
    return x;
  }
};
struct EightQ4_K : EightNibblesK<false> {
  static constexpr tensor::DType kDType = tensor::DType::Q4_K;
};
struct EightQ5_K : EightNibblesK<true> {
  static constexpr tensor::DType kDType = tensor::DType::Q5_K;
};

// Halves of four runs of 32: 64 bytes of nibbles, of the runs 0 and 1 the low ones, and 32 bytes with two top bits of
// each run.
struct EightQ6_K {
  static constexpr tensor::DType kDType = tensor::DType::Q6_K;
  static constexpr int kBlock = 256;
  __device__ static EightElements of(const Parts& parts, int64_t block, int j) {
    const int half = j / 128, run = j % 128 / 32, at = j % 32;
    const uint64_t low = nibbles_of(eight_bytes(parts.base[0] + block * 128 + half * 64 + run % 2 * 32 + at), run / 2);
    const uint64_t top = eight_bytes(parts.base[1] + block * 64 + half * 32 + at) >> (2 * run) & 0x0303030303030303ull;
    const uint64_t q = low | top << 4;
    const float scale = half_at(parts.base[3] + block * 2) *
                        static_cast<float>(static_cast<int8_t>(parts.base[2][block * 16 + j / 16]));
    EightElements x;
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = scale * static_cast<float>(byte_of(q, i) - 32);
    return x;
  }
};

struct EightF32 {
  static constexpr tensor::DType kDType = tensor::DType::F32;
  static constexpr int kBlock = 8;
  __device__ static EightElements of(const Parts& parts, int64_t block, int) {
    const auto* p = reinterpret_cast<const float4*>(parts.base[0]) + 2 * block;
    const float4 a = p[0], b = p[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
};
struct EightF16 {
  static constexpr tensor::DType kDType = tensor::DType::F16;
  static constexpr int kBlock = 8;
  __device__ static EightElements of(const Parts& parts, int64_t block, int) {
    const uint4 x = reinterpret_cast<const uint4*>(parts.base[0])[block];
    return {{low_half(x.x), high_half(x.x), low_half(x.y), high_half(x.y), low_half(x.z), high_half(x.z), low_half(x.w),
             high_half(x.w)}};
  }
};
struct EightBF16 {
  static constexpr tensor::DType kDType = tensor::DType::BF16;
  static constexpr int kBlock = 8;
  __device__ static EightElements of(const Parts& parts, int64_t block, int) {
    const uint4 words = reinterpret_cast<const uint4*>(parts.base[0])[block];
    const uint32_t w[4] = {words.x, words.y, words.z, words.w};
    EightElements x;
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = num::bf16_to_float(static_cast<uint16_t>(w[i / 2] >> (16 * (i % 2))));
    return x;
  }
};

// Elements 8 i .. 8 i + 7 of a row, times scale where the op has one, to their place in y.
template <class Eight>
__device__ inline void decode_eight(const Parts& parts, int64_t cols, int64_t row, int64_t i, bool scaled, float scale,
                                    float* y) {
  constexpr int64_t kPerBlock = Eight::kBlock / 8;
  EightElements x = Eight::of(parts, row * (cols / Eight::kBlock) + i / kPerBlock, static_cast<int>(i % kPerBlock) * 8);
#pragma unroll
  for (float& v : x.v) v = scaled ? v * scale : v;
  auto* to = reinterpret_cast<float4*>(y) + 2 * i;
  to[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  to[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

// What a row `rows by eights` of the table takes (kernels/unpack_table.h).
using EightFormats =
    FormatList<EightQ4_0, EightQ4_1, EightQ8_0, EightQ4_K, EightQ5_K, EightQ6_K, EightF32, EightF16, EightBF16>;

}  // namespace assay::backend::cuda
