// What a lane of a decode kernel makes of a block of weights in shared memory (decode_ring.cuh) and of its block of the row (decode_places.cuh).
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

__device__ inline int byte_at(uint32_t word, int i) { return static_cast<int>((word >> (8 * i)) & 255u); }
__device__ inline int signed_byte_at(uint32_t word, int i) { return static_cast<int>(word << (24 - 8 * i)) >> 24; }
// Two sums of int16 times two bytes with sign, the lower or the higher ones.
__device__ inline int32_t dot_sums(uint4 sums, uint32_t first, uint32_t second, int32_t m) {
  m = __dp2a_lo(static_cast<int>(sums.x), static_cast<int>(first), m);
  m = __dp2a_hi(static_cast<int>(sums.y), static_cast<int>(first), m);
  m = __dp2a_lo(static_cast<int>(sums.z), static_cast<int>(second), m);
  return __dp2a_hi(static_cast<int>(sums.w), static_cast<int>(second), m);
}
template <int kPlanes>
__device__ inline float joined(const int32_t (&i)[kPlanes]) {
  if constexpr (kPlanes == 2) return quant::join_planes(i[0], i[1]);
  return static_cast<float>(i[0]);
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
  static __device__ float finish(Sum c, const Seat&, int n_chunks) {  // the tree over an output's chunks; every lane has its row's
#pragma unroll
    for (int width = 1; width <= 4; width *= 2) {
      const float sum = c + __shfl_xor_sync(kWholeWarp, c, 4 * width);
      if (width < n_chunks) c = sum;
    }
    return c;
  }
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

// Superblocks of nibbles with six bits of scale and of minimum for each run of 32 (quant/k_scales.h); group g of 32 bytes is runs 2 g and 2 g + 1.
// A fifth bit is dotted for itself, where it stands.
template <bool kFifth>
struct DecodeNibblesK {
  static constexpr int kAtOnce = 1, kUnrolled = 1;  // blocks that a lane takes at once; so many times in the loop
  template <class Row>
  static __device__ void add(float& c, const LanePlace& p, int) {
    constexpr int kPlanes = Row::kPlanes;
    const uint8_t *n[2] = {p.big[0] + p.swap, p.big[0] + (16 - p.swap)}, *x[2] = {p.x + p.swap, p.x + (16 - p.swap)};
    const uint4 header = piece_of(p.small[0]);
    uint4 bits[2] = {};
    if constexpr (kFifth) bits[0] = piece_of(p.small[1] + p.swap), bits[1] = piece_of(p.small[1] + (16 - p.swap));
    const uint32_t scales[2] = {header.y & 0x3F3F3F3Fu, (header.w & 0x0F0F0F0Fu) | ((header.y >> 2) & 0x30303030u)};
    const uint32_t minima[2] = {header.z & 0x3F3F3F3Fu, ((header.w >> 4) & 0x0F0F0F0Fu) | ((header.z >> 2) & 0x30303030u)};
    int32_t i[kPlanes] = {}, high[kPlanes] = {}, m[kPlanes];
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      const uint4 w[2] = {piece_of(n[0] + 32 * g), piece_of(n[1] + 32 * g)};
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        int32_t low_sum = 0, high_sum = 0;
        const int at = 256 * plane + 64 * g;
        const uint4 q[2] = {piece_of(x[0] + at), piece_of(x[1] + at)}, r[2] = {piece_of(x[0] + at + 32), piece_of(x[1] + at + 32)};
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
      m[plane] = dot_sums(piece_of(p.x + Row::kSums32 + 16 * plane), minima[0], minima[1], 0);
    }
    const float t = quant::block_term(true, {low_half(header.x), -high_half(header.x)}, joined(i), joined(m));
    c = num::fma(*reinterpret_cast<const float*>(p.x + Row::kScale), t, c);
  }
};
struct DecodeQ4_K : DecodeNibblesK<false> {
  static constexpr tensor::DType kDType = tensor::DType::Q4_K;
  static constexpr int kBigs = 1, kSmalls = 1;
  static __host__ __device__ constexpr PartOf big(int) { return {1, 128}; }
  static __host__ __device__ constexpr PartOf small(int) { return {0, 16}; }
};
struct DecodeQ5_K : DecodeNibblesK<true> {
  static constexpr tensor::DType kDType = tensor::DType::Q5_K;
  static constexpr int kBigs = 1, kSmalls = 2;
  static __host__ __device__ constexpr PartOf big(int) { return {2, 128}; }
  static __host__ __device__ constexpr PartOf small(int i) { return i == 0 ? PartOf{0, 16} : PartOf{1, 32}; }
};

// Of each half of 128 elements: nibbles as 64 bytes (runs 0 and 1 of 32 low, runs 2 and 3 high), two top bits of the four runs as 32 bytes, 8
// scales of 16 elements. Top bits are dotted for themselves, where they stand.
struct DecodeQ6_K {
  static constexpr tensor::DType kDType = tensor::DType::Q6_K;
  static constexpr int kAtOnce = 1, kUnrolled = 1, kBigs = 2, kSmalls = 2;
  static __host__ __device__ constexpr PartOf big(int i) { return i == 0 ? PartOf{0, 128} : PartOf{1, 64}; }
  static __host__ __device__ constexpr PartOf small(int i) { return i == 0 ? PartOf{2, 16} : PartOf{3, 2}; }

  // Adds 16 weights of run `run`, in the high runs 16 times as large, times their scale.
  static __device__ void add_run(int run, uint4 w, uint4 top, uint4 q, int scale, int32_t (&sum)[2]) {
    const int32_t dot = dot_bytes(top, 0x03030303u << (2 * run), q, 0) << (run % 2 == 0 ? 4 : 2);
    sum[run / 2] += scale * dot_bytes(w, run < 2 ? kLowNibbles : kHighNibbles, q, dot);
  }
  template <class Row>
  static __device__ void add(float& c, const LanePlace& p, int) {
    constexpr int kPlanes = Row::kPlanes;
    const uint4 scales = piece_of(p.small[0]);
    const uint32_t words[4] = {scales.x, scales.y, scales.z, scales.w}, order = p.swap == 0 ? 0x3210u : 0x2301u;
    int32_t sum[kPlanes][2] = {}, i[kPlanes];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t s[2] = {__byte_perm(words[2 * half], 0, order), __byte_perm(words[2 * half + 1], 0, order)};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = j == 0 ? p.swap : 16 - p.swap;
        const uint4 first = piece_of(p.big[0] + at + 64 * half), second = piece_of(p.big[0] + at + 64 * half + 32);
        const uint4 top = piece_of(p.big[1] + at + 32 * half);
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane) {
#pragma unroll
          for (int run = 0; run < 4; ++run) {
            add_run(run, run % 2 == 0 ? first : second, top, piece_of(p.x + at + 256 * plane + 128 * half + 32 * run),
                    signed_byte_at(s[run / 2], run % 2 * 2 + j), sum[plane]);
          }
        }
      }
    }
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const uint8_t* sums = p.x + Row::kSums16 + 32 * plane;
      const int32_t too_large = dot_sums(piece_of(sums + 16), words[2], words[3], dot_sums(piece_of(sums), words[0], words[1], 0));
      i[plane] = sum[plane][0] + (sum[plane][1] >> 4) - 32 * too_large;
    }
    const float t = low_half(half_word_of(p.small[1])) * joined(i);
    c = num::fma(*reinterpret_cast<const float*>(p.x + Row::kScale), t, c);
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
