// What a lane of a decode kernel makes of a block of weights in shared memory (decode_ring.cuh; superblocks:
// decode_superblocks.cuh) and of its block of the row (decode_places.cuh). A format says which of a matrix's parts
// (matrix.h) its weights and scales are, and how many bytes a block has of them. Rows in a slot begin kSkew bytes after
// whole groups of banks: what lanes read at the same time of several rows is then on different ones. Of a quantised
// format each of a warp's 32 lanes has one of the contract's chains: a chunk of one of four rows, whose blocks it takes
// in order by itself; of float weights four lanes have a chunk of two rows. 32 bytes that are used together are read as
// two halves, in swapped order by lanes of odd chunks, and so are the elements of the row that meet them: the groups of
// banks are then all different.
#pragma once

#include "backend/cuda/decode/decode_lanes.cuh"
#include "backend/cuda/linear/float_row.cuh"

namespace assay::backend::cuda {

// Of a warp's lane: where it works. part: its row of the four; of float weights, its eight of a block's elements.
struct Seat {
  int lane, chunk, part;
  __device__ Seat() : lane(threadIdx.x % 32), chunk(lane / 4), part(lane % 4) {}
  __device__ int swap() const { return 16 * (chunk & 1); }
};

// A lane's next block of weights, their scales, and the block of the row.
struct LanePlace {
  const uint8_t* weights;
  const uint8_t* scales;
  const uint8_t* x;
  int row_stride;  // of weights, to the next row
  int swap;
};

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
// Those of float weights: lane `part` of a chunk holds the contract's lanes 8 part .. 8 part + 7 of two rows, in odd
// chunks the second one first.
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
  static constexpr int kAtOnce = 1, kUnrolled = 4, kWeightsPart = 1, kBlockBytes = 32, kSkew = 32, kScalesPart = 0,
                       kScaleBytes = 2;

  template <class Row>
  static __device__ void add(float& c, const LanePlace& p, int) {
    const Words w = words_of(piece_of(p.weights + p.swap), piece_of(p.weights + (16 - p.swap)));
    int32_t i[Row::kPlanes];
#pragma unroll
    for (int plane = 0; plane < Row::kPlanes; ++plane) {
      const uint8_t* x = p.x + 32 * plane;
      i[plane] = dot_8(w, words_of(piece_of(x + p.swap), piece_of(x + (16 - p.swap))));
    }
    const float t = low_half(half_word_of(p.scales)) * joined(i);
    c = num::fma(*reinterpret_cast<const float*>(p.x + Row::kScale), t, c);
  }
};

// A block is 16 bytes: a lane takes two at once, the second first where its chunk is odd. Past the chunk's end it finds
// anything, and leaves it out.
template <bool kHasMin>
struct DecodeNibbles32 {
  static constexpr int kAtOnce = 2, kUnrolled = 2, kWeightsPart = 1, kBlockBytes = 16, kSkew = 32, kScalesPart = 0,
                       kScaleBytes = kHasMin ? 4 : 2;

  struct Term {
    float t, d;
  };
  template <class Row>
  static __device__ Term term(const LanePlace& p, int block) {
    const uint4 w = piece_of(p.weights + 16 * block);
    const uint8_t* x = p.x + block * Row::kRecord;
    int32_t i[Row::kPlanes], m[Row::kPlanes];
#pragma unroll
    for (int plane = 0; plane < Row::kPlanes; ++plane) {
      const int32_t low = dot_bytes(w, kLowNibbles, piece_of(x + 32 * plane), 0);
      const int32_t sum = *reinterpret_cast<const int16_t*>(x + Row::kSums + 2 * plane);
      i[plane] = low + (dot_bytes(w, kHighNibbles, piece_of(x + 32 * plane + 16), 0) >> 4) - (kHasMin ? 0 : 8 * sum);
      m[plane] = kHasMin ? sum : 0;
    }
    const uint8_t* at = p.scales + block * kScaleBytes;
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
  static constexpr int kAtOnce = 1, kUnrolled = 4, kWeightsPart = 0, kBlockBytes = 32 * sizeof(W),
                       kSkew = sizeof(W) == 2 ? 64 : 16;
  static constexpr int kScalesPart = 0, kScaleBytes = 0;

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
    const float4 a = *reinterpret_cast<const float4*>(p.x + p.swap),
                 b = *reinterpret_cast<const float4*>(p.x + (16 - p.swap));
    const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int r = 0; r < OfFloats::kRows; ++r) {
      float w[8];
      take(p.weights + ((r == 0) == (p.swap == 0) ? 0 : p.row_stride), w);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum.lane[r][i] = num::fma(w[i], v[i], sum.lane[r][i]);
    }
  }
};
using DecodeF32 = DecodeFloat<float, tensor::DType::F32>;
using DecodeF16 = DecodeFloat<__half, tensor::DType::F16>;
using DecodeBF16 = DecodeFloat<Bf16, tensor::DType::BF16>;

}  // namespace assay::backend::cuda
