// How the lanes of a decode kernel fetch their share of a row of weights into shared memory, long before they need it, and what they then
// make of it and of the row of activations (decode_row.cuh). A warp walks a row in steps: four neighbouring lanes take one of the 8 chunks of
// the contract, so every chain is summed in place and the tree is three shuffles at the end. A step fills a slot of shared memory that is the
// warp's own; what lanes share of it is said at each format.
#pragma once

#include "backend/cuda/decode_row.cuh"
#include "backend/cuda/float_row.cuh"
#include "backend/cuda/gemv_formats.cuh"
#include "quant/steps.h"

namespace assay::backend::cuda {

__device__ inline void fetch_16(uint8_t* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
__device__ inline void fetch_4(uint8_t* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from) : "memory");
}
__device__ inline uint4 piece_of(const uint8_t* p) { return *reinterpret_cast<const uint4*>(p); }
__device__ inline uint32_t word_of(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }

// Of a warp's lane: where it works.
struct Seat {
  int lane, chunk, part;
  __device__ Seat() : lane(threadIdx.x % 32), chunk(lane / 4), part(lane % 4) {}
};

// The 128 bytes of low bits of a block, 64 neighbouring bytes by the four lanes at a time; lane `part` reads its 32 of them back at 16 * lane and
// 512 + 16 * lane.
__device__ inline void fetch_low_bits(const uint4* block, const Seat& seat, uint8_t* slot) {
  uint8_t* to = slot + (seat.part & 1) * 512 + 64 * seat.chunk + (seat.part >> 1) * 16;
  fetch_16(to, block + seat.part);
  fetch_16(to + 32, block + seat.part + 4);
}

// 8 words of 4 weights; weights are bytes without sign, up to 240.
__device__ inline int32_t dot_unsigned(const Words& w, const Words& q) {
  int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w.w[i]), "r"(q.w[i]));
  return sum;
}
// Sum of min times sum over the 8 runs of 32; minima: as bytes.
__device__ inline int32_t dot_minima(uint32_t first, uint32_t second, uint4 sums) {
  int32_t m = __dp2a_lo(static_cast<int>(sums.x), static_cast<int>(first), 0);
  m = __dp2a_hi(static_cast<int>(sums.y), static_cast<int>(first), m);
  m = __dp2a_lo(static_cast<int>(sums.z), static_cast<int>(second), m);
  return __dp2a_hi(static_cast<int>(sums.w), static_cast<int>(second), m);
}
__device__ inline int32_t sum_of_four(int32_t x) {  // over the four lanes of a chunk
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}
__device__ inline void minima_of(uint4 header, uint32_t& first, uint32_t& second) {
  first = header.z & 0x3F3F3F3Fu;
  second = ((header.w >> 4) & 0x0F0F0F0Fu) | ((header.z >> 2) & 0x30303030u);
}

// Superblocks: the four lanes share a block, a step is a block of each chunk. Slot: the lanes' low bits as two runs of 32 pieces, then what
// the format shares among the four lanes.
struct DecodeQ4_K : GemvQ4_K {
  static constexpr int kSlotBytes = 1024 + 128, kHighSwizzle = 160;
  static __device__ int low_piece(int part) { return 4 * part; }
  static __device__ void fetch(const Parts& parts, int64_t block, const Seat& seat, uint8_t* slot) {
    fetch_low_bits(part_of(parts, 1, block, 128), seat, slot);
    if (seat.part == 0) fetch_16(slot + 1024 + 16 * seat.chunk, part_of(parts, 0, block, 16));
  }
  static __device__ Raw take(const uint8_t* slot, const Seat& seat) {
    return {{piece_of(slot + 16 * seat.lane), piece_of(slot + 512 + 16 * seat.lane)}, piece_of(slot + 1024 + 16 * seat.chunk)};
  }
};
struct DecodeQ5_K : GemvQ5_K {
  static constexpr int kSlotBytes = 1024 + 256 + 128, kHighSwizzle = 160;
  static __device__ int low_piece(int part) { return 4 * part; }
  static __device__ void fetch(const Parts& parts, int64_t block, const Seat& seat, uint8_t* slot) {
    fetch_low_bits(part_of(parts, 2, block, 128), seat, slot);
    if (seat.part < 2) fetch_16(slot + 1024 + 32 * seat.chunk + 16 * seat.part, part_of(parts, 1, block, 32) + seat.part);
    if (seat.part == 2) fetch_16(slot + 1280 + 16 * seat.chunk, part_of(parts, 0, block, 16));
  }
  static __device__ Raw take(const uint8_t* slot, const Seat& seat) {
    const uint8_t* bits = slot + 1024 + 32 * seat.chunk;
    return {{piece_of(slot + 16 * seat.lane), piece_of(slot + 512 + 16 * seat.lane)},
            {piece_of(bits), piece_of(bits + 16)},
            piece_of(slot + 1280 + 16 * seat.chunk)};
  }
};
struct DecodeQ6_K : GemvQ6_K {
  static constexpr int kSlotBytes = 1024 + 512 + 128 + 32, kHighSwizzle = 32;
  static __device__ int low_piece(int part) { return 8 * (part / 2) + 2 * (part % 2); }
  static __device__ void fetch(const Parts& parts, int64_t block, const Seat& seat, uint8_t* slot) {
    fetch_low_bits(part_of(parts, 0, block, 128), seat, slot);
    fetch_16(slot + 1024 + 16 * seat.lane, part_of(parts, 1, block, 64) + seat.part);
    if (seat.part == 0) fetch_16(slot + 1536 + 16 * seat.chunk, part_of(parts, 2, block, 16));
    if (seat.part == 1) fetch_4(slot + 1664 + 4 * seat.chunk, parts.base[3] + block / 2 * 4);  // this block's scale and a neighbour's
    }
  static __device__ Raw take(const uint8_t* slot, const Seat& seat, int64_t block) {
    const int half = seat.part / 2;
    const uint8_t* bits = slot + 1024 + 64 * seat.chunk + 32 * half;
    const uint32_t d = word_of(slot + 1664 + 4 * seat.chunk) >> (16 * (block & 1));
    return {{piece_of(slot + 16 * seat.lane), piece_of(slot + 512 + 16 * seat.lane)},
            {piece_of(bits), piece_of(bits + 16)},
            *reinterpret_cast<const uint2*>(slot + 1536 + 16 * seat.chunk + 8 * half),
            static_cast<uint16_t>(d & 0xFFFFu)};
  }
};

template <int kPlanes>
struct Lanes256 {
  using Row = RowA256<kPlanes>;
  using Sum = float;
  static constexpr int kStep = 1;  // blocks of a chunk

  // The term of block `block` of the activations' row; first_block: of the row of weights.
  template <class F>
  static __device__ float term(const uint8_t* slot, const Row& x, int block, int64_t first_block, const Seat& seat) {
    typename F::Raw raw;
    if constexpr (std::is_same_v<F, DecodeQ6_K>) {
      raw = F::take(slot, seat, first_block + block);
    } else {
      raw = F::take(slot, seat);
    }
    constexpr bool kHighTimes16 = std::is_same_v<F, DecodeQ4_K>;
    Lane256 w;
    if constexpr (kHighTimes16) {  // high nibbles stay where they are: their dot is 16 times as large
      const Words n = words_of(raw.n[0], raw.n[1]);
#pragma unroll
      for (int i = 0; i < 8; ++i) w.low.w[i] = n.w[i] & 0x0F0F0F0Fu, w.high.w[i] = n.w[i] & 0xF0F0F0F0u;
      k_scales(raw.header, seat.part, w);
    } else {
      w = F::unpack(raw, seat.part);
    }
    uint32_t minima[2] = {};
    if constexpr (F::kHasMin) minima_of(raw.header, minima[0], minima[1]);
    int32_t i[kPlanes], m[kPlanes];
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const uint8_t* q = x.q + 256 * (plane * x.n + block);
      const int at = Row::place(F::low_piece(seat.part), seat.chunk);
      const Words low = words_of(piece_of(q + at), piece_of(q + (at ^ 16)));
      const Words high = words_of(piece_of(q + (at ^ F::kHighSwizzle)), piece_of(q + (at ^ F::kHighSwizzle ^ 16)));
      if constexpr (F::kHasMin) {
        const int32_t dot_high = kHighTimes16 ? dot_unsigned(w.high, high) >> 4 : dot_8(w.high, high);
        i[plane] = w.scale[0] * dot_8(w.low, low) + w.scale[2] * dot_high;
        m[plane] = dot_minima(minima[0], minima[1], *reinterpret_cast<const uint4*>(x.sums_32 + 8 * (plane * x.n + block)));
      } else {
        const auto* pairs = reinterpret_cast<const short2*>(x.sums_16 + 16 * (plane * x.n + block));
        const short2 a = pairs[F::low_run(seat.part) / 32], b = pairs[F::high_run(seat.part) / 32];
        i[plane] = w.scale[0] * (dot_4(w.low.w, low.w) - w.offset * a.x) + w.scale[1] * (dot_4(w.low.w + 4, low.w + 4) - w.offset * a.y) +
                   w.scale[2] * (dot_4(w.high.w, high.w) - w.offset * b.x) + w.scale[3] * (dot_4(w.high.w + 4, high.w + 4) - w.offset * b.y);
        m[plane] = 0;
      }
      i[plane] = sum_of_four(i[plane]);
    }
    const float f = kPlanes == 2 ? quant::join_planes(i[0], i[kPlanes - 1]) : static_cast<float>(i[0]);
    const float g = kPlanes == 2 ? quant::join_planes(m[0], m[kPlanes - 1]) : static_cast<float>(m[0]);
    return quant::block_term(F::kHasMin, w.scales, f, g);
  }
  // Blocks at .. of the lane's chunk, which ends at `end`.
  template <class F>
  static __device__ void add(Sum& c, const uint8_t* slot, const Row& x, int at, int end, int64_t first_block, const Seat& seat) {
    const int block = min(at, x.n - 1);  // past the chunk's end: anything, left out
    const float next = num::fma(x.d[block], term<F>(slot, x, block, first_block, seat), c);
    c = at < end ? next : c;
  }
  template <class F>
  static __device__ void fetch(const Parts& parts, int at, int end, int64_t first_block, const Seat& seat, uint8_t* slot) {
    if (at < end) F::fetch(parts, first_block + at, seat, slot);
  }
  static __device__ float finish(Sum c) {
#pragma unroll
    for (int width = 4; width <= 16; width *= 2) c = c + __shfl_xor_sync(kWholeWarp, c, width);  // the tree over the chunks
    return c;
  }
};

// Blocks of 32: each of the four lanes has its own, a step is four blocks of each chunk. Nothing in a slot is shared.
struct DecodeQ4_0 : GemvQ4_0 {
  static constexpr int kSlotBytes = 512 + 128;
  static __device__ void fetch(const Parts& parts, int64_t block, const Seat& seat, uint8_t* slot) {
    fetch_16(slot + 16 * seat.lane, part_of(parts, 1, block, 16));
    fetch_4(slot + 512 + 4 * seat.lane, parts.base[0] + block / 2 * 4);
  }
  static __device__ Raw take(const uint8_t* slot, const Seat& seat, int64_t block) {
    const uint32_t d = word_of(slot + 512 + 4 * seat.lane) >> (16 * (block & 1));
    return {piece_of(slot + 16 * seat.lane), static_cast<uint16_t>(d & 0xFFFFu)};
  }
};
struct DecodeQ4_1 : GemvQ4_1 {
  static constexpr int kSlotBytes = 512 + 128;
  static __device__ void fetch(const Parts& parts, int64_t block, const Seat& seat, uint8_t* slot) {
    fetch_16(slot + 16 * seat.lane, part_of(parts, 1, block, 16));
    fetch_4(slot + 512 + 4 * seat.lane, parts.base[0] + block * 4);
  }
  static __device__ Raw take(const uint8_t* slot, const Seat& seat, int64_t) {
    return {piece_of(slot + 16 * seat.lane), word_of(slot + 512 + 4 * seat.lane)};
  }
};
struct DecodeQ8_0 : GemvQ8_0 {
  static constexpr int kSlotBytes = 1024 + 128;
  static __device__ void fetch(const Parts& parts, int64_t block, const Seat& seat, uint8_t* slot) {
    const uint4* q = part_of(parts, 1, block, 32);
    fetch_16(slot + 16 * seat.lane, q);
    fetch_16(slot + 512 + 16 * seat.lane, q + 1);
    fetch_4(slot + 1024 + 4 * seat.lane, parts.base[0] + block / 2 * 4);
  }
  static __device__ Raw take(const uint8_t* slot, const Seat& seat, int64_t block) {
    const uint32_t d = word_of(slot + 1024 + 4 * seat.lane) >> (16 * (block & 1));
    return {{piece_of(slot + 16 * seat.lane), piece_of(slot + 512 + 16 * seat.lane)}, static_cast<uint16_t>(d & 0xFFFFu)};
  }
};

template <int kPlanes>
struct Lanes32Wide {
  using Row = RowA32<kPlanes>;
  using Sum = float;
  static constexpr int kStep = 4;

  template <class F>
  static __device__ void add(Sum& c, const uint8_t* slot, const Row& x, int at, int end, int64_t first_block, const Seat& seat) {
    const int block = min(at + seat.part, x.n - 1);
    const Lane32 w = F::unpack(F::take(slot, seat, first_block + block), 0);
    int32_t i[kPlanes], m[kPlanes];
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const uint8_t* q = x.q + 32 * (plane * x.n + block);
      const Words words = words_of(piece_of(q + Row::place(0, seat.chunk)), piece_of(q + Row::place(1, seat.chunk)));
      const int32_t sum = x.sums[plane * x.n + block];
      i[plane] = dot_8(w.w, words) - w.offset * sum;
      m[plane] = F::kHasMin ? sum : 0;
    }
    const float f = kPlanes == 2 ? quant::join_planes(i[0], i[kPlanes - 1]) : static_cast<float>(i[0]);
    const float g = kPlanes == 2 ? quant::join_planes(m[0], m[kPlanes - 1]) : static_cast<float>(m[0]);
    const float term = quant::block_term(F::kHasMin, w.scale, f, g), d = x.d[block];
#pragma unroll
    for (int s = 0; s < 4; ++s) {  // the chain goes through the four lanes' blocks
      const float next = num::fma(__shfl_sync(kWholeWarp, d, s, 4), __shfl_sync(kWholeWarp, term, s, 4), c);
      c = at + s < end ? next : c;
    }
  }
  template <class F>
  static __device__ void fetch(const Parts& parts, int at, int end, int64_t first_block, const Seat& seat, uint8_t* slot) {
    if (at + seat.part < end) F::fetch(parts, first_block + at + seat.part, seat, slot);
  }
  static __device__ float finish(Sum c) { return Lanes256<1>::finish(c); }
};

// Float weights: lane `part` of a chunk holds the contract's lanes 8 part .. 8 part + 7, a step is two blocks of 32 of each chunk.
template <class W, tensor::DType kType>
struct DecodeFloat {
  static constexpr tensor::DType kDType = kType;
  static constexpr int kPieces = 8 * sizeof(W) / 16, kBlockPieces = 512 * kPieces, kSlotBytes = 2 * kBlockPieces;
  static __device__ void fetch(const Parts& parts, int64_t block, const Seat& seat, uint8_t* slot) {
    const auto* from = reinterpret_cast<const uint4*>(parts.base[0] + (32 * block + 8 * seat.part) * sizeof(W));
#pragma unroll
    for (int i = 0; i < kPieces; ++i) fetch_16(slot + 512 * i + 16 * seat.lane, from + i);
  }
  static __device__ void take(const uint8_t* slot, const Seat& seat, float (&out)[8]) {
    if constexpr (kPieces == 1) {
      widen_8<W>(piece_of(slot + 16 * seat.lane), out);
    } else {
      const Words words = words_of(piece_of(slot + 16 * seat.lane), piece_of(slot + 512 + 16 * seat.lane));
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] = __uint_as_float(words.w[i]);
    }
  }
};
using DecodeF32 = DecodeFloat<float, tensor::DType::F32>;
using DecodeF16 = DecodeFloat<__half, tensor::DType::F16>;
using DecodeBF16 = DecodeFloat<Bf16, tensor::DType::BF16>;

struct LanesFloat {
  using Row = RowF32;
  struct Sum {
    float lane[8] = {};
  };
  static constexpr int kStep = 2;

  template <class F>
  static __device__ void add(Sum& sum, const uint8_t* slot, const Row& x, int at, int end, int64_t, const Seat& seat) {
#pragma unroll
    for (int s = 0; s < kStep; ++s) {
      if (at + s >= end) break;
      float w[8];
      F::take(slot + s * F::kBlockPieces, seat, w);
      const float* block = x.x + 32 * (at + s);
      const float4 a = *reinterpret_cast<const float4*>(block + Row::place(2 * seat.part, seat.chunk));
      const float4 b = *reinterpret_cast<const float4*>(block + Row::place(2 * seat.part + 1, seat.chunk));
      const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) sum.lane[i] = num::fma(w[i], v[i], sum.lane[i]);
    }
  }
  template <class F>
  static __device__ void fetch(const Parts& parts, int at, int end, int64_t first_block, const Seat& seat, uint8_t* slot) {
#pragma unroll
    for (int s = 0; s < kStep; ++s) {
      if (at + s < end) F::fetch(parts, first_block + at + s, seat, slot + s * F::kBlockPieces);
    }
  }
  static __device__ float finish(const Sum& sum) { return fold_and_tree(sum.lane); }
};

}  // namespace assay::backend::cuda
