// What a lane of a decode kernel makes of a block of weights in shared memory (decode_ring.cuh; superblocks: decode_superblocks.cuh) and of its block
// of the row (decode_places.cuh).
// Of a quantised format each of a warp's 32 lanes has one of the contract's chains: a chunk of one of four rows, whose blocks it takes in order by
// itself; of float weights four lanes have a chunk of two rows. 32 bytes that are used together are read as two halves, in swapped order by
// lanes of odd chunks, and so are the elements of the row that meet them: the groups of banks are then all different.
#pragma once

#include "backend/cuda/decode_places.cuh"
#include "backend/cuda/float_row.cuh"
#include "backend/cuda/gemv_formats.cuh"
#include "quant/steps.h"

namespace assay::backend::cuda {

__device__ inline uint4 piece_of(const uint8_t* p) { return *reinterpret_cast<const uint4*>(p); }
__device__ inline uint32_t word_of(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ inline uint32_t half_word_of(const uint8_t* p) { return *reinterpret_cast<const uint16_t*>(p); }

// Of a warp's lane: where it works. part: its row of the four; of float weights, its eight of a block's elements.
struct Seat {
  int lane, chunk, part;
  __device__ Seat() : lane(threadIdx.x % 32), chunk(lane / 4), part(lane % 4) {}
  __device__ int swap() const { return 16 * (chunk & 1); }
};

// A part of a format's blocks in the device's memory (matrix.h). Rows in a slot begin `skew` bytes after whole groups of banks: what lanes read at
// the same time of several rows is then on different ones.
struct PartOf {
  int i, bytes, skew = 32;
};

// A lane's next block: of each part that comes step by step, of each that comes for a whole row at once, and of the row of activations.
struct LanePlace {
  const uint8_t* big[2];
  const uint8_t* small[2];
  const uint8_t* x;
  int row_stride;  // of big[0], to the next row
  int swap;
};

// Adds the products of 16 weights, bytes without sign.
__device__ inline int32_t dot_bytes(uint4 w, uint32_t mask, uint4 q, int32_t sum) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w.x & mask), "r"(q.x));
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w.y & mask), "r"(q.y));
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w.z & mask), "r"(q.z));
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w.w & mask), "r"(q.w));
  return sum;
}
inline constexpr uint32_t kLowNibbles = 0x0F0F0F0Fu, kHighNibbles = 0xF0F0F0F0u;  // high ones stay where they are: their dot is 16 times as large

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

// What formats of one kernel share: those of chains.
struct OfChains {
  static constexpr int kRows = 4;  // of a unit of work
  using Sum = float;
  // Where a lane begins: which of the unit's rows, how far in a block of weights, in the row of activations.
  static __device__ int own_row(const Seat& seat) { return seat.part; }
  static __device__ int own_place(const Seat&, int) { return 0; }
  template <class Row>
  static __device__ const uint8_t* place_of(const Row& x, int block, const Seat& seat, int n_chunks) {
    return x.memory + record_place(block, seat.chunk & (n_chunks - 1), Row::kRecord);
  }
  static __device__ float finish(Sum c, const Seat&, int n_chunks) { return chunks_sum(c, n_chunks); }
};
// Those of float weights: lane `part` of a chunk holds the contract's lanes 8 part .. 8 part + 7 of two rows, in odd chunks the second one first.
struct OfFloats {
  static constexpr int kRows = 2;
  struct Sum {
    float lane[kRows][8] = {};
  };
  static __device__ int own_row(const Seat&) { return 0; }
  static __device__ int own_place(const Seat& seat, int block_bytes) { return block_bytes / 4 * seat.part; }
  static __device__ const uint8_t* place_of(const RowF32& x, int block, const Seat& seat, int) {
    return reinterpret_cast<const uint8_t*>(x.x) + 128 * block + 32 * seat.part;
  }
  static __device__ float finish(const Sum& sum, const Seat& seat, int) {  // lanes of even parts have the first row's
    float y[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float lane[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) lane[i] = seat.chunk % 2 == 0 ? sum.lane[r][i] : sum.lane[1 - r][i];
      y[r] = fold_and_tree(lane);
    }
    return seat.part % 2 == 0 ? y[0] : y[1];
  }
};

// Blocks of 32.
struct DecodeQ8_0 {
  static constexpr tensor::DType kDType = tensor::DType::Q8_0;
  static constexpr int kAtOnce = 1, kUnrolled = 2, kBigs = 1, kSmalls = 1;
  static __host__ __device__ constexpr PartOf big(int) { return {1, 32}; }
  static __host__ __device__ constexpr PartOf small(int) { return {0, 2}; }

  template <class Row>
  static __device__ void add(float& c, const LanePlace& p, int) {
    const Words w = words_of(piece_of(p.big[0] + p.swap), piece_of(p.big[0] + (16 - p.swap)));
    int32_t i[Row::kPlanes];
#pragma unroll
    for (int plane = 0; plane < Row::kPlanes; ++plane) {
      const uint8_t* x = p.x + 32 * plane;
      i[plane] = dot_8(w, words_of(piece_of(x + p.swap), piece_of(x + (16 - p.swap))));
    }
    const float t = low_half(half_word_of(p.small[0])) * joined(i);
    c = num::fma(*reinterpret_cast<const float*>(p.x + Row::kScale), t, c);
  }
};

// A block is 16 bytes: a lane takes two at once, the second first where its chunk is odd. Past the chunk's end it finds anything, and leaves it out.
template <bool kHasMin>
struct DecodeNibbles32 {
  static constexpr int kAtOnce = 2, kUnrolled = 1, kBigs = 1, kSmalls = 1, kScaleBytes = kHasMin ? 4 : 2;
  static __host__ __device__ constexpr PartOf big(int) { return {1, 16}; }
  static __host__ __device__ constexpr PartOf small(int) { return {0, kScaleBytes}; }

  struct Term {
    float t, d;
  };
  template <class Row>
  static __device__ Term term(const LanePlace& p, int block) {
    const uint4 w = piece_of(p.big[0] + 16 * block);
    const uint8_t* x = p.x + block * Row::kRecord;
    int32_t i[Row::kPlanes], m[Row::kPlanes];
#pragma unroll
    for (int plane = 0; plane < Row::kPlanes; ++plane) {
      const int32_t low = dot_bytes(w, kLowNibbles, piece_of(x + 32 * plane), 0);
      const int32_t sum = *reinterpret_cast<const int16_t*>(x + Row::kSums + 2 * plane);
      i[plane] = low + (dot_bytes(w, kHighNibbles, piece_of(x + 32 * plane + 16), 0) >> 4) - (kHasMin ? 0 : 8 * sum);
      m[plane] = kHasMin ? sum : 0;
    }
    const uint8_t* at = p.small[0] + block * kScaleBytes;
    const uint32_t scales = kHasMin ? word_of(at) : half_word_of(at);
    return {quant::block_term(kHasMin, {low_half(scales), kHasMin ? high_half(scales) : 0.0f}, joined(i), joined(m)),
            *reinterpret_cast<const float*>(x + Row::kScale)};
  }
  template <class Row>
  static __device__ void add(float& c, const LanePlace& p, int n_left) {
    const bool odd = p.swap != 0;
    const Term a = term<Row>(p, odd ? 1 : 0), b = term<Row>(p, odd ? 0 : 1);
    c = num::fma(odd ? b.d : a.d, odd ? b.t : a.t, c);
    const float next = num::fma(odd ? a.d : b.d, odd ? a.t : b.t, c);
    c = n_left > 1 ? next : c;
  }
};
struct DecodeQ4_0 : DecodeNibbles32<false> {
  static constexpr tensor::DType kDType = tensor::DType::Q4_0;
};
struct DecodeQ4_1 : DecodeNibbles32<true> {
  static constexpr tensor::DType kDType = tensor::DType::Q4_1;
};

template <class W, tensor::DType kType>
struct DecodeFloat {
  static constexpr tensor::DType kDType = kType;
  static constexpr int kAtOnce = 1, kUnrolled = 2, kBigs = 1, kSmalls = 0, kBlockBytes = 32 * sizeof(W);
  static __host__ __device__ constexpr PartOf big(int) { return {0, kBlockBytes, sizeof(W) == 2 ? 64 : 16}; }
  static __host__ __device__ constexpr PartOf small(int) { return {0, 0}; }

  static __device__ void take(const uint8_t* from, float (&out)[8]) {
    if constexpr (sizeof(W) == 2) {
      widen_8<W>(piece_of(from), out);
    } else {
      const Words words = words_of(piece_of(from), piece_of(from + 16));
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] = __uint_as_float(words.w[i]);
    }
  }
  template <class Row>
  static __device__ void add(OfFloats::Sum& sum, const LanePlace& p, int) {
    const float4 a = *reinterpret_cast<const float4*>(p.x + p.swap), b = *reinterpret_cast<const float4*>(p.x + (16 - p.swap));
    const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int r = 0; r < OfFloats::kRows; ++r) {
      float w[8];
      take(p.big[0] + ((r == 0) == (p.swap == 0) ? 0 : p.row_stride), w);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum.lane[r][i] = num::fma(w[i], v[i], sum.lane[r][i]);
    }
  }
};
using DecodeF32 = DecodeFloat<float, tensor::DType::F32>;
using DecodeF16 = DecodeFloat<__half, tensor::DType::F16>;
using DecodeBF16 = DecodeFloat<Bf16, tensor::DType::BF16>;

}  // namespace assay::backend::cuda
