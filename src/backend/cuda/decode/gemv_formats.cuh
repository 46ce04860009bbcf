// What the decode kernels (gemv.cu) know of the formats that are cut into parts: how a lane loads its share of a block
// and dots it. Weights come as words of 4 bytes, unsigned where the format has an offset, which is then taken off with
// the sums of the activations.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/linear/block_parts.h"
#include "backend/cuda/linear/matrix.h"
#include "quant/format.h"

namespace assay::backend::cuda {

__device__ inline const uint4* part_of(const Parts& parts, int p, int64_t block, int bytes) {
  return reinterpret_cast<const uint4*>(parts.base[p] + block * bytes);
}
__device__ inline float low_half(uint32_t word) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xFFFFu)));
}
__device__ inline float high_half(uint32_t word) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16)));
}

// The bulk of a block is read once, so it need not stay in the first-level cache.
__device__ inline uint4 read_once(const uint4* p) { return __ldcs(p); }

struct Words {
  uint32_t w[8];  // 32 bytes
};
__device__ inline Words words_of(uint4 a, uint4 b) { return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}}; }

__device__ inline int32_t dot_4(const uint32_t* w, const uint32_t* q) {  // 16 products
  int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum = __dp4a(static_cast<int>(w[i]), static_cast<int>(q[i]), sum);
  return sum;
}
__device__ inline int32_t dot_8(const Words& w, const Words& q) {
  int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = __dp4a(static_cast<int>(w.w[i]), static_cast<int>(q.w[i]), sum);
  return sum;
}

// A block of 32 as one lane holds it.
struct Lane32 {
  Words w;
  quant::BlockScales scale;
  int offset = 0;  // what every weight is too large by
};

// A superblock as one of four lanes holds it: two runs of 32 weights with the sub-scales of their halves.
struct Lane256 {
  Words low, high;
  int32_t scale[4];  // low run's first 16, its second 16, high run's
  int32_t min[4];
  quant::BlockScales scales;
  int offset = 0;
};

__device__ inline void unpack_nibbles(uint4 n, Words& out) {
  const uint32_t w[4] = {n.x, n.y, n.z, n.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) out.w[i] = w[i] & 0x0F0F0F0Fu, out.w[i + 4] = (w[i] >> 4) & 0x0F0F0F0Fu;
}

struct GemvQ4_0 {
  static constexpr tensor::DType kDType = tensor::DType::Q4_0;
  static constexpr int kBlock = 32;
  static constexpr bool kHasMin = false;
  struct Raw {
    uint4 n;
    uint16_t d;
  };
  __device__ static Raw load(const Parts& parts, int64_t block, int) {
    return {read_once(part_of(parts, 1, block, kQ4_0Bytes)),
            *reinterpret_cast<const uint16_t*>(parts.base[0] + block * kQ4_0HeadBytes)};
  }
  __device__ static Lane32 unpack(const Raw& raw, int) {
    Lane32 lane;
    unpack_nibbles(raw.n, lane.w);
    lane.scale = {low_half(raw.d), 0.0f};
    lane.offset = 8;
    return lane;
  }
};

struct GemvQ4_1 {
  static constexpr tensor::DType kDType = tensor::DType::Q4_1;
  static constexpr int kBlock = 32;
  static constexpr bool kHasMin = true;
  struct Raw {
    uint4 n;
    uint32_t dm;
  };
  __device__ static Raw load(const Parts& parts, int64_t block, int) {
    return {read_once(part_of(parts, 1, block, kQ4_1Bytes)),
            *reinterpret_cast<const uint32_t*>(parts.base[0] + block * kQ4_1HeadBytes)};
  }
  __device__ static Lane32 unpack(const Raw& raw, int) {
    Lane32 lane;
    unpack_nibbles(raw.n, lane.w);
    lane.scale = {low_half(raw.dm), high_half(raw.dm)};
    return lane;
  }
};

struct GemvQ8_0 {
  static constexpr tensor::DType kDType = tensor::DType::Q8_0;
  static constexpr int kBlock = 32;
  static constexpr bool kHasMin = false;
  struct Raw {
    uint4 q[2];
    uint16_t d;
  };
  __device__ static Raw load(const Parts& parts, int64_t block, int) {
    const uint4* q = part_of(parts, 1, block, kQ8_0Bytes);
    return {{read_once(q), read_once(q + 1)},
            *reinterpret_cast<const uint16_t*>(parts.base[0] + block * kQ8_0HeadBytes)};
  }
  __device__ static Lane32 unpack(const Raw& raw, int) {
    Lane32 lane;
    lane.w = words_of(raw.q[0], raw.q[1]);
    lane.scale = {low_half(raw.d), 0.0f};
    return lane;
  }
};

// The 12 bytes of Q4_K and Q5_K (quant/k_scales.h) for the two sub-blocks of lane `part`.
__device__ inline void k_scales(uint4 header, int part, Lane256& lane) {
  const uint32_t s0 = header.y, s1 = header.z, s2 = header.w;
  const bool first = part < 2;
  const uint32_t scales = first ? s0 & 0x3F3F3F3Fu : (s2 & 0x0F0F0F0Fu) | ((s0 >> 2) & 0x30303030u);
  const uint32_t minima = first ? s1 & 0x3F3F3F3Fu : ((s2 >> 4) & 0x0F0F0F0Fu) | ((s1 >> 2) & 0x30303030u);
  const int shift = 16 * (part & 1);
  lane.scale[0] = lane.scale[1] = static_cast<int32_t>((scales >> shift) & 255u);
  lane.scale[2] = lane.scale[3] = static_cast<int32_t>((scales >> (shift + 8)) & 255u);
  lane.min[0] = lane.min[1] = static_cast<int32_t>((minima >> shift) & 255u);
  lane.min[2] = lane.min[3] = static_cast<int32_t>((minima >> (shift + 8)) & 255u);
  lane.scales = {low_half(header.x), -high_half(header.x)};
}

struct GemvQ4_K {
  static constexpr tensor::DType kDType = tensor::DType::Q4_K;
  static constexpr int kBlock = 256;
  static constexpr bool kHasMin = true;
  __device__ static int low_run(int part) { return 64 * part; }
  __device__ static int high_run(int part) { return 64 * part + 32; }
  struct Raw {
    uint4 n[2], header;
  };
  __device__ static Raw load(const Parts& parts, int64_t block, int part) {
    const uint4* n = part_of(parts, 1, block, kNibbleBytes) + 2 * part;
    return {{read_once(n), read_once(n + 1)}, *part_of(parts, 0, block, kHeadBytes)};
  }
  __device__ static Lane256 unpack(const Raw& raw, int part) {
    const Words w = words_of(raw.n[0], raw.n[1]);
    Lane256 lane;
#pragma unroll
    for (int i = 0; i < 8; ++i) lane.low.w[i] = w.w[i] & 0x0F0F0F0Fu, lane.high.w[i] = (w.w[i] >> 4) & 0x0F0F0F0Fu;
    k_scales(raw.header, part, lane);
    return lane;
  }
};

struct GemvQ5_K {
  static constexpr tensor::DType kDType = tensor::DType::Q5_K;
  static constexpr int kBlock = 256;
  static constexpr bool kHasMin = true;
  __device__ static int low_run(int part) { return 64 * part; }
  __device__ static int high_run(int part) { return 64 * part + 32; }
  struct Raw {
    uint4 n[2], bits[2], header;
  };
  __device__ static Raw load(const Parts& parts, int64_t block, int part) {
    const uint4* n = part_of(parts, 2, block, kNibbleBytes) + 2 * part;
    const uint4* h = part_of(parts, 1, block, kFifthBytes);
    return {{read_once(n), read_once(n + 1)}, {h[0], h[1]}, *part_of(parts, 0, block, kHeadBytes)};
  }
  __device__ static Lane256 unpack(const Raw& raw, int part) {
    const Words w = words_of(raw.n[0], raw.n[1]), bits = words_of(raw.bits[0], raw.bits[1]);
    Lane256 lane;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t pair = bits.w[i] >> (2 * part);
      lane.low.w[i] = (w.w[i] & 0x0F0F0F0Fu) | ((pair & 0x01010101u) << 4);
      lane.high.w[i] = ((w.w[i] >> 4) & 0x0F0F0F0Fu) | ((pair & 0x02020202u) << 3);
    }
    k_scales(raw.header, part, lane);
    return lane;
  }
};

struct GemvQ6_K {
  static constexpr tensor::DType kDType = tensor::DType::Q6_K;
  static constexpr int kBlock = 256;
  static constexpr bool kHasMin = false;
  __device__ static int low_run(int part) { return 128 * (part / 2) + 32 * (part % 2); }
  __device__ static int high_run(int part) { return low_run(part) + 64; }
  struct Raw {
    uint4 n[2], bits[2];
    uint2 scales;
    uint16_t d;
  };
  __device__ static Raw load(const Parts& parts, int64_t block, int part) {
    const int half = part / 2, side = part % 2;
    const uint4* n = part_of(parts, 0, block, kQ6KNibbleBytes) + 4 * half + 2 * side;
    const uint4* h = part_of(parts, 1, block, kQ6KPairBytes) + 2 * half;
    return {{read_once(n), read_once(n + 1)},
            {h[0], h[1]},
            reinterpret_cast<const uint2*>(parts.base[2] + block * kQ6KScaleBytes)[half],
            *reinterpret_cast<const uint16_t*>(parts.base[3] + block * kQ6KFactorBytes)};
  }
  __device__ static Lane256 unpack(const Raw& raw, int part) {
    const int side = part % 2;
    const Words w = words_of(raw.n[0], raw.n[1]), bits = words_of(raw.bits[0], raw.bits[1]);
    Lane256 lane;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // pair `side` of the top bits for the low run, pair 2 + side for the high one
      const uint32_t pair = bits.w[i] >> (2 * side);
      lane.low.w[i] = (w.w[i] & 0x0F0F0F0Fu) | ((pair & 0x03030303u) << 4);
      lane.high.w[i] = ((w.w[i] >> 4) & 0x0F0F0F0Fu) | (pair & 0x30303030u);
    }
    const uint32_t low = raw.scales.x >> (16 * side), high = raw.scales.y >> (16 * side);
    lane.scale[0] = static_cast<int8_t>(low & 255u);
    lane.scale[1] = static_cast<int8_t>((low >> 8) & 255u);
    lane.scale[2] = static_cast<int8_t>(high & 255u);
    lane.scale[3] = static_cast<int8_t>((high >> 8) & 255u);
    lane.scales = {low_half(raw.d), 0.0f};
    lane.offset = 32;
    return lane;
  }
};

}  // namespace assay::backend::cuda
