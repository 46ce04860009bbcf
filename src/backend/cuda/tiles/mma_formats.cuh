// What the prefill kernels know of the formats that are cut into parts: which bytes of a row a stage of 128 weights
// needs, and how a warp makes fragments of them. The bytes stay packed in shared memory: in every format byte i of a
// run belongs to element i of some 32 (16 for blocks of 32), so a fragment of packed bytes is the fragment of the
// weights after masks and shifts.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/decode/gemv_formats.cuh"
#include "backend/cuda/linear/block_parts.h"
#include "backend/cuda/tiles/mma_steps.cuh"

namespace assay::backend::cuda {

// Unsigned bytes less an offset that is given as 128 - offset in every byte.
__device__ inline uint32_t less_offset(uint32_t bytes, uint32_t complement) {
  return (bytes + complement) ^ 0x80808080u;
}

__device__ inline uint32_t two_halves(uint32_t a, uint32_t b) {
  const __half2 pair = __halves2half2(__ushort2half_rn(static_cast<unsigned short>(a)),
                                      __ushort2half_rn(static_cast<unsigned short>(b)));
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// Two 16-bit integers as half-precision numbers.
__device__ inline uint32_t halves_of(uint32_t pair) {
  const auto low = static_cast<int16_t>(pair & 0xFFFFu), high = static_cast<int16_t>(pair >> 16);
  const __half2 h = __halves2half2(__short2half_rn(low), __short2half_rn(high));
  return *reinterpret_cast<const uint32_t*>(&h);
}
__device__ inline uint32_t word_at(uint32_t shared) {
  uint32_t w;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w) : "r"(shared));
  return w;
}
__device__ inline float float_at(uint32_t shared) { return __uint_as_float(word_at(shared)); }
__device__ inline float2 floats_at(uint32_t shared) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(shared));
  return x;
}
__device__ inline uint4 words_at(uint32_t shared) {
  uint4 w;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "r"(shared));
  return w;
}

// The scales and minima of four sub-blocks of Q4_K and Q5_K, one a byte (quant/k_scales.h).
__device__ inline uint32_t k_scale_word(uint4 header, int half) {
  return half == 0 ? header.y & 0x3F3F3F3Fu : (header.w & 0x0F0F0F0Fu) | ((header.y >> 2) & 0x30303030u);
}
__device__ inline uint32_t k_min_word(uint4 header, int half) {
  return half == 0 ? header.z & 0x3F3F3F3Fu : ((header.w >> 4) & 0x0F0F0F0Fu) | ((header.z >> 2) & 0x30303030u);
}
// Minima of the 16 groups as lane % 4 = k holds them in a fragment: groups 2 k and 2 k + 1, then 2 k + 8 and 2 k + 9.
__device__ inline void k_minima(uint4 header, int k, uint32_t& low, uint32_t& high) {
  const uint32_t a = (k_min_word(header, 0) >> (8 * k)) & 255u, b = (k_min_word(header, 1) >> (8 * k)) & 255u;
  low = two_halves(a, a);
  high = two_halves(b, b);
}

// The floats of a block come in two steps, the load and what becomes of it, so that nothing waits for the load.
__device__ inline uint32_t load_pair(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ inline uint32_t load_one(const uint8_t* p) { return *reinterpret_cast<const uint16_t*>(p); }
__device__ inline quant::BlockScales scales_of_pair(uint32_t w) { return {low_half(w), high_half(w)}; }
__device__ inline quant::BlockScales scales_of_one(uint32_t w) { return {low_half(w), 0.0f}; }

// Superblocks come in halves. A row of a stage is kPieces runs of 16 bytes (an odd number: rows then lie in different
// banks). Step i of a half is 32 weights, those from 32 * run(i) on; even steps load, odd ones use the other bits of
// the same bytes. What Q4_K and Q5_K have in common: the header of a block, kHeaderAt bytes from the beginning of a row
// of a stage.
template <int kHeaderAt>
struct MmaKHeader {
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = true;
  struct Scales {
    uint32_t w;
  };
  __device__ static quant::BlockScales block_scales(uint32_t w) { return {low_half(w), -high_half(w)}; }
  __device__ static constexpr int run(int i) { return i; }
  __device__ static Scales scales(uint32_t row, int half) { return {k_scale_word(words_at(row + kHeaderAt), half)}; }
  __device__ static int scale(const Scales& s, int run, int) { return static_cast<int>((s.w >> (8 * run)) & 255u); }
  __device__ static void minima(uint32_t row, int k, uint32_t& low, uint32_t& high) {
    k_minima(words_at(row + kHeaderAt), k, low, high);
  }
};

struct MmaQ4_K : MmaKHeader<64> {
  static constexpr tensor::DType kDType = tensor::DType::Q4_K;
  static constexpr int kPieces = 5;
  struct Raw {
    uint32_t n[4];
  };
  // Two threads copy a row: where its bytes begin for this one.
  struct Source {
    const uint8_t *n, *header;
    __device__ Source(const Parts& p, int64_t block, int side)
        : n(p.base[1] + block * kNibbleBytes + 32 * side), header(p.base[0] + block * kHeadBytes) {}
    __device__ void copy(uint32_t row, int half_block, int side) const {
      copy_16(row + 32 * side, n + 64 * half_block, true);
      copy_16(row + 32 * side + 16, n + 64 * half_block + 16, true);
      if (side == 0) copy_16(row + 64, header + half_block / 2 * kHeadBytes, true);
    }
    __device__ uint32_t load_scales(int block) const { return load_pair(header + block * kHeadBytes); }
  };
  __device__ static void load(uint32_t at, int i, Raw& raw) {
    if (i % 2 == 0) load_matrices(at + 16 * i, raw.n);
  }
  __device__ static void unpack(const Raw& raw, int, int i, uint32_t (&a)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) a[j] = (raw.n[j] >> (4 * (i % 2))) & 0x0F0F0F0Fu;
  }
};

struct MmaQ5_K : MmaKHeader<96> {
  static constexpr tensor::DType kDType = tensor::DType::Q5_K;
  static constexpr int kPieces = 7;
  struct Raw {
    uint32_t n[4], bits[4];
  };
  struct Source {
    const uint8_t *n, *bits, *header;
    __device__ Source(const Parts& p, int64_t block, int side)
        : n(p.base[2] + block * kNibbleBytes + 32 * side), bits(p.base[1] + block * kFifthBytes + 16 * side),
          header(p.base[0] + block * kHeadBytes) {}
    __device__ void copy(uint32_t row, int half_block, int side) const {
      copy_16(row + 32 * side, n + 64 * half_block, true);
      copy_16(row + 32 * side + 16, n + 64 * half_block + 16, true);
      copy_16(row + 64 + 16 * side, bits + half_block / 2 * kFifthBytes, true);
      if (side == 0) copy_16(row + 96, header + half_block / 2 * kHeadBytes, true);
    }
    __device__ uint32_t load_scales(int block) const { return load_pair(header + block * kHeadBytes); }
  };
  __device__ static void load(uint32_t at, int i, Raw& raw) {
    if (i % 2 == 0) load_matrices(at + 16 * i, raw.n);
    if (i == 0) load_matrices(at + 64, raw.bits);
  }
  __device__ static void unpack(const Raw& raw, int half, int i, uint32_t (&a)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      a[j] = ((raw.n[j] >> (4 * (i % 2))) & 0x0F0F0F0Fu) | (((raw.bits[j] >> (4 * half + i)) & 0x01010101u) << 4);
    }
  }
};

struct MmaQ6_K {
  static constexpr tensor::DType kDType = tensor::DType::Q6_K;
  static constexpr int kGroup = 16, kPieces = 7;
  static constexpr bool kHasMin = false;
  struct Raw {
    uint32_t n[4], bits[4];
  };
  struct Scales {
    uint32_t w[2];
  };
  struct Source {
    const uint8_t *n, *bits, *scales, *d;
    __device__ Source(const Parts& p, int64_t block, int side)
        : n(p.base[0] + block * kQ6KNibbleBytes + 32 * side), bits(p.base[1] + block * kQ6KPairBytes + 16 * side),
          scales(p.base[2] + block * kQ6KScaleBytes), d(p.base[3] + block * kQ6KFactorBytes) {}
    __device__ void copy(uint32_t row, int half_block, int side) const {
      copy_16(row + 32 * side, n + 64 * half_block, true);
      copy_16(row + 32 * side + 16, n + 64 * half_block + 16, true);
      copy_16(row + 64 + 16 * side, bits + half_block * 32, true);
      if (side == 0) copy_16(row + 96, scales + half_block / 2 * kQ6KScaleBytes, true);
    }
    __device__ uint32_t load_scales(int block) const { return load_one(d + block * kQ6KFactorBytes); }
  };
  __device__ static quant::BlockScales block_scales(uint32_t w) { return scales_of_one(w); }
  __device__ static constexpr int run(int i) { return i / 2 + 2 * (i % 2); }
  __device__ static void load(uint32_t at, int i, Raw& raw) {
    if (i % 2 == 0) load_matrices(at + 16 * i, raw.n);
    if (i == 0) load_matrices(at + 64, raw.bits);
  }
  __device__ static void unpack(const Raw& raw, int, int i, uint32_t (&a)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t v =
          ((raw.n[j] >> (4 * (i % 2))) & 0x0F0F0F0Fu) | (((raw.bits[j] >> (2 * run(i))) & 0x03030303u) << 4);
      a[j] = less_offset(v, 0x60606060u);
    }
  }
  __device__ static Scales scales(uint32_t row, int half) {
    return {{word_at(row + 96 + 8 * half), word_at(row + 100 + 8 * half)}};
  }
  __device__ static int scale(const Scales& s, int run, int side) {
    return static_cast<int8_t>((s.w[run / 2] >> (16 * (run % 2) + 8 * side)) & 255u);
  }
  __device__ static void minima(uint32_t, int, uint32_t&, uint32_t&) {}
};

// Blocks of 32: a stage is four blocks.
struct MmaQ4_0 {
  static constexpr tensor::DType kDType = tensor::DType::Q4_0;
  static constexpr bool kHasMin = false;
  static constexpr int kPieces = 4, kPitch = 80, kBlockBytes = kQ4_0Bytes;
  __device__ static uint32_t load_scales(const Parts& p, int64_t block) {
    return load_one(p.base[0] + block * kQ4_0HeadBytes);
  }
  __device__ static quant::BlockScales block_scales(uint32_t w) { return scales_of_one(w); }
  __device__ static void fragment(uint32_t at, uint32_t (&a)[4]) {
    uint32_t n[2];
    load_matrices(at, n);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      a[j] = less_offset(n[j] & 0x0F0F0F0Fu, 0x78787878u);
      a[j + 2] = less_offset((n[j] >> 4) & 0x0F0F0F0Fu, 0x78787878u);
    }
  }
};

struct MmaQ4_1 {
  static constexpr tensor::DType kDType = tensor::DType::Q4_1;
  static constexpr bool kHasMin = true;
  static constexpr int kPieces = 4, kPitch = 80, kBlockBytes = kQ4_1Bytes;
  __device__ static uint32_t load_scales(const Parts& p, int64_t block) {
    return load_pair(p.base[0] + block * kQ4_1HeadBytes);
  }
  __device__ static quant::BlockScales block_scales(uint32_t w) { return scales_of_pair(w); }
  __device__ static void fragment(uint32_t at, uint32_t (&a)[4]) {
    uint32_t n[2];
    load_matrices(at, n);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      a[j] = n[j] & 0x0F0F0F0Fu;
      a[j + 2] = (n[j] >> 4) & 0x0F0F0F0Fu;
    }
  }
};

struct MmaQ8_0 {
  static constexpr tensor::DType kDType = tensor::DType::Q8_0;
  static constexpr bool kHasMin = false;
  static constexpr int kPieces = 8, kPitch = 144, kBlockBytes = kQ8_0Bytes;
  __device__ static uint32_t load_scales(const Parts& p, int64_t block) {
    return load_one(p.base[0] + block * kQ8_0HeadBytes);
  }
  __device__ static quant::BlockScales block_scales(uint32_t w) { return scales_of_one(w); }
  __device__ static void fragment(uint32_t at, uint32_t (&a)[4]) { load_matrices(at, a); }
};

}  // namespace assay::backend::cuda
