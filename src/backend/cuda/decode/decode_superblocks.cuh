// What a lane of the decode kernel of superblocks (decode_steps.cuh) makes of one of its own in shared memory and of
// its block of the row.
#pragma once

#include "backend/cuda/decode/decode_lanes.cuh"
#include "backend/cuda/linear/block_parts.h"

namespace assay::backend::cuda {

__device__ inline int byte_at(uint32_t word, int i) { return static_cast<int>((word >> (8 * i)) & 255u); }
__device__ inline int signed_byte_at(uint32_t word, int i) { return static_cast<int>(word << (24 - 8 * i)) >> 24; }
// Two sums of int16 times two bytes with sign, the lower or the higher ones.
__device__ inline int32_t dot_sums(uint4 sums, uint32_t first, uint32_t second, int32_t m) {
  m = __dp2a_lo(static_cast<int>(sums.x), static_cast<int>(first), m);
  m = __dp2a_hi(static_cast<int>(sums.y), static_cast<int>(first), m);
  m = __dp2a_lo(static_cast<int>(sums.z), static_cast<int>(second), m);
  return __dp2a_hi(static_cast<int>(sums.w), static_cast<int>(second), m);
}

// A part of a format's blocks in the device's memory (matrix.h) that is whole pieces of 16 bytes, and where those of a
// step's 32 superblocks stand in a slot.
struct PiecesOf {
  int i, bytes, at;
};
// Their pieces stand in such an order that eight lanes that read the same piece of eight superblocks read eight groups
// of banks.
__device__ constexpr uint32_t place_of_piece(uint32_t pieces, uint32_t block, uint32_t piece) {
  return 16 * (pieces * block + (piece ^ (block / (8 / pieces) % pieces)));
}
// A lane's superblock in a slot that begins at a whole group of banks.
struct LaneBlock {
  const uint8_t* memory;
  uint32_t slot, lane;
  __device__ uint4 piece(PiecesOf part, int i) const {
    return piece_of(memory + ((slot + part.at + place_of_piece(part.bytes / 16, lane, 0)) ^ (16 * i)));
  }
};

// Superblocks of nibbles with six bits of scale and of minimum for each run of 32 (quant/k_scales.h); group g of 32
// bytes is runs 2 g and 2 g + 1. A fifth bit is dotted for itself, where it stands.
template <bool kFifth>
struct StepNibblesK {
  static constexpr int kParts = kFifth ? 3 : 2, kScalePart = -1;
  static constexpr int kSlot = 32 * (kFifth ? kQ5KBytes : kQ4KBytes);
  static __host__ __device__ constexpr PiecesOf part(int k) {
    if (k == 1) return {0, kHeadBytes, 32 * kNibbleBytes};
    return k == 0 ? PiecesOf{kFifth ? 2 : 1, kNibbleBytes, 0} : PiecesOf{1, kFifthBytes, 32 * kQ4KBytes};
  }
  // The superblock's term times the scale of x, on top of c.
  template <class Row>
  static __device__ float add(float c, const LaneBlock& block, const uint8_t* x, uint32_t) {
    constexpr int kPlanes = Row::kPlanes;
    const uint4 header = block.piece(part(1), 0);
    uint4 bits[2] = {};
    if constexpr (kFifth) bits[0] = block.piece(part(2), 0), bits[1] = block.piece(part(2), 1);
    const uint32_t scales[2] = {header.y & 0x3F3F3F3Fu, (header.w & 0x0F0F0F0Fu) | ((header.y >> 2) & 0x30303030u)};
    const uint32_t minima[2] = {header.z & 0x3F3F3F3Fu,
                                ((header.w >> 4) & 0x0F0F0F0Fu) | ((header.z >> 2) & 0x30303030u)};
    int32_t i[kPlanes] = {}, high[kPlanes] = {}, m[kPlanes];
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      const uint4 w[2] = {block.piece(part(0), 2 * g), block.piece(part(0), 2 * g + 1)};
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        int32_t low_sum = 0, high_sum = 0;
        const uint8_t* at = x + 256 * plane + 64 * g;
        const uint4 q[2] = {piece_of(at), piece_of(at + 16)}, r[2] = {piece_of(at + 32), piece_of(at + 48)};
        if constexpr (kFifth) {
          const uint32_t low_bit = 0x01010101u << (2 * g), high_bit = 0x02020202u << (2 * g);
          low_sum = dot_bytes(bits[1], low_bit, q[1], dot_bytes(bits[0], low_bit, q[0], 0));
          low_sum = g < 2 ? low_sum << (4 - 2 * g) : low_sum >> (2 * g - 4);
          high_sum = dot_bytes(bits[1], high_bit, r[1], dot_bytes(bits[0], high_bit, r[0], 0)) << (7 - 2 * g);
        }
        low_sum = dot_bytes(w[1], kLowNibbles, q[1], dot_bytes(w[0], kLowNibbles, q[0], low_sum));
        high_sum = dot_bytes(w[1], kHighNibbles, r[1], dot_bytes(w[0], kHighNibbles, r[0], high_sum));
        i[plane] += byte_at(scales[g / 2], 2 * g % 4) * low_sum;
        high[plane] += byte_at(scales[g / 2], 2 * g % 4 + 1) * high_sum;
      }
    }
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      i[plane] += high[plane] >> 4;
      m[plane] = dot_sums(piece_of(x + Row::kSums32 + 16 * plane), minima[0], minima[1], 0);
    }
    const float t = quant::block_term(true, {low_half(header.x), -high_half(header.x)}, joined(i), joined(m));
    return num::fma(*reinterpret_cast<const float*>(x + Row::kScale), t, c);
  }
};
struct StepQ4_K : StepNibblesK<false> {
  static constexpr tensor::DType kDType = tensor::DType::Q4_K;
};
struct StepQ5_K : StepNibblesK<true> {
  static constexpr tensor::DType kDType = tensor::DType::Q5_K;
};

// Of each half of 128 elements: nibbles as 64 bytes (runs 0 and 1 of 32 low, runs 2 and 3 high), two top bits of the
// four runs as 32 bytes, 8 scales of 16 elements. Top bits are dotted for themselves, where they stand. The factors
// come as words, each with its neighbour.
struct StepQ6_K {
  static constexpr tensor::DType kDType = tensor::DType::Q6_K;
  static constexpr int kParts = 3, kScalePart = 3, kFactors = 32 * kQ6KRowBytes, kSlot = kFactors + 128;
  static __host__ __device__ constexpr PiecesOf part(int k) {
    if (k == 0) return {0, kQ6KNibbleBytes, 0};
    return k == 1 ? PiecesOf{1, kQ6KPairBytes, 32 * kQ6KNibbleBytes} : PiecesOf{2, kQ6KScaleBytes, 32 * kQ6KScalesAt};
  }
  // Adds 16 weights of run `run`, in the high runs 16 times as large, times their scale.
  static __device__ void add_run(int run, uint4 w, uint4 top, uint4 q, int scale, int32_t (&sum)[2]) {
    const int32_t dot = dot_bytes(top, 0x03030303u << (2 * run), q, 0) << (run % 2 == 0 ? 4 : 2);
    sum[run / 2] += scale * dot_bytes(w, run < 2 ? kLowNibbles : kHighNibbles, q, dot);
  }
  template <class Row>
  static __device__ float add(float c, const LaneBlock& block, const uint8_t* x, uint32_t d) {
    constexpr int kPlanes = Row::kPlanes;
    const uint4 scales = block.piece(part(2), 0);
    const uint32_t words[4] = {scales.x, scales.y, scales.z, scales.w};
    int32_t sum[kPlanes][2] = {}, i[kPlanes];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint4 first = block.piece(part(0), 4 * half + j), second = block.piece(part(0), 4 * half + j + 2);
        const uint4 top = block.piece(part(1), 2 * half + j);
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane) {
#pragma unroll
          for (int run = 0; run < 4; ++run) {
            add_run(run, run % 2 == 0 ? first : second, top, piece_of(x + 256 * plane + 128 * half + 32 * run + 16 * j),
                    signed_byte_at(words[2 * half + run / 2], run % 2 * 2 + j), sum[plane]);
          }
        }
      }
    }
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const uint8_t* sums = x + Row::kSums16 + 32 * plane;
      const int32_t too_large =
          dot_sums(piece_of(sums + 16), words[2], words[3], dot_sums(piece_of(sums), words[0], words[1], 0));
      i[plane] = sum[plane][0] + (sum[plane][1] >> 4) - 32 * too_large;
    }
    const float t = low_half(d) * joined(i);
    return num::fma(*reinterpret_cast<const float*>(x + Row::kScale), t, c);
  }
};

}  // namespace assay::backend::cuda
