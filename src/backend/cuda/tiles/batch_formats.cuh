// What the kernel for several tokens (batch_256.cu) knows of the superblock formats: how a warp brings a superblock of
// its rows into shared memory and makes fragments of it. The weights that one product adds may stand in any order, if
// the activations stand in the same: a lane takes neighbouring bytes. Pieces of 16 bytes are exchanged so that eight
// rows, or four rows of two pieces, lie in different banks.
#pragma once

#include "backend/cuda/linear/block_parts.h"
#include "backend/cuda/tiles/mma_formats.cuh"

namespace assay::backend::cuda {

// By what the pieces of a row (or a column) are exchanged.
__device__ inline uint32_t exchange_of(uint32_t row) { return (row & 3) << 1 | (row >> 2 & 1); }

// Where a lane reads in lines of 128 bytes, of row lane / 4: 8 bytes from 8 * (lane % 4), or 4 bytes from 4 * (lane %
// 4). Run j, of 32 bytes, is found by an exclusive or with 32 * j; its second piece, for the words, by one with 16.
struct BatchLane {
  uint32_t row, place;
  uint32_t pair, word;
  __device__ BatchLane() : row(threadIdx.x % 32 / 4), place(threadIdx.x % 4) {
    const uint32_t f = exchange_of(row);
    pair = row * 128 + (((place >> 1) ^ f) << 4) + 8 * (place & 1);
    word = row * 128 + (f << 4) + 4 * place;
  }
};

__device__ inline uint2 pair_at(uint32_t shared) {
  uint2 w;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "r"(shared));
  return w;
}

// Where a lane copies its next superblock's parts from: four bits of each weight, sub-scales, further bits, scale.
struct BatchSource {
  const uint8_t *low, *small, *upper, *scale;
};

// A part of kBytes a superblock, of kRows rows, by a warp. First the place of the lane: superblock `block` is the first
// row's, `blocks` further the next row's.
template <int kRows, int kBytes>
__device__ inline const uint8_t* part_begin(const uint8_t* base, int64_t block, int blocks) {
  constexpr int kPieces = kBytes / 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return base + (block + lane / kPieces % kRows * blocks) * kBytes + 16 * (lane % kPieces);
}
// Pieces of 16 bytes of rows that lie row_bytes apart, the lane's row at `from`, into lines of kBytes in shared memory.
template <int kRows, int kBytes>
__device__ inline void copy_rows(const uint8_t* from, uint32_t to, uint32_t row_bytes, bool inside) {
  constexpr int kPieces = kBytes / 16, kAtOnce = 32 / kPieces;  // rows
  static_assert(kAtOnce > kRows || kAtOnce % 4 == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / kPieces;
#pragma unroll
  for (int i = 0; i < (kRows + kAtOnce - 1) / kAtOnce; ++i) {
    if (kAtOnce > kRows && row >= kRows) break;
    const auto r = static_cast<uint32_t>(row + (kBytes == 128 ? i % 2 * kAtOnce : 0));  // what the exchange depends on
    const uint32_t exchange = kBytes == 128 ? exchange_of(r) : kBytes == 64 ? (r >> 1 & 3) : 0;
    copy_16(to + static_cast<uint32_t>((row + i * kAtOnce) * kBytes) +
                16 * (static_cast<uint32_t>(lane % kPieces) ^ exchange),
            from + static_cast<uint32_t>(i * kAtOnce) * row_bytes, inside);
  }
}
// The same of a part; the row's next superblock is then the next.
template <int kRows, int kBytes>
__device__ inline void copy_part(const uint8_t*& from, uint32_t to, int blocks) {
  copy_rows<kRows, kBytes>(from, to, static_cast<uint32_t>(kBytes) * static_cast<uint32_t>(blocks), true);
  from += kBytes;
}
__device__ inline void copy_4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"(to), "l"(from) : "memory");
}

// A superblock of 16 * kM rows in shared memory, for the formats of 4 and 5 bits.
template <bool kFive>
struct BatchQ45_K {
  static constexpr tensor::DType kDType = kFive ? tensor::DType::Q5_K : tensor::DType::Q4_K;
  static constexpr bool kHasMin = true;
  static constexpr int kRowBytes = kFive ? kQ5KBytes : kQ4KBytes;
  __device__ static constexpr int sub(int group, int which) { return 2 * group + which; }  // of 32 weights

  template <int kRows>
  __device__ static void begin(BatchSource& s, const Parts& parts, int64_t block, int blocks) {
    s.low = part_begin<kRows, kNibbleBytes>(parts.base[kFive ? 2 : 1], block, blocks);
    s.small = part_begin<kRows, kHeadBytes>(parts.base[0], block, blocks);
    if constexpr (kFive) s.upper = part_begin<kRows, kFifthBytes>(parts.base[1], block, blocks);
  }
  template <int kRows>
  __device__ static void copy(BatchSource& s, uint32_t to, int blocks) {
    copy_part<kRows, kNibbleBytes>(s.low, to, blocks);
    copy_part<kRows, kHeadBytes>(s.small, to + kRows * kNibbleBytes, blocks);
    if constexpr (kFive) copy_part<kRows, kFifthBytes>(s.upper, to + kRows * kQ4KBytes, blocks);
  }
  __device__ static void columns_at(uint32_t shared, const BatchLane& lane, int sub, uint32_t (&b)[2]) {
    const uint2 w = pair_at(shared + (lane.pair ^ static_cast<uint32_t>(sub % 4 * 32)));
    b[0] = w.x, b[1] = w.y;
  }

  template <int kM>
  struct Rows {
    static constexpr int kRows = 16 * kM;
    uint32_t stage;
    const BatchLane& lane;
    uint32_t scales[kM][2][2];  // of a row and 8 rows further, of the halves
    uint2 n[kM][2], bits[kFive ? kM : 1][2];

    __device__ uint4 header(int m, int side) const {
      return words_at(stage + kRows * kNibbleBytes +
                      (lane.row + static_cast<uint32_t>(16 * m + 8 * side)) * kHeadBytes);
    }
    __device__ Rows(uint32_t from, const BatchLane& of) : stage(from), lane(of) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const uint4 h = header(m, side);
          scales[m][side][0] = k_scale_word(h, 0), scales[m][side][1] = k_scale_word(h, 1);
          if constexpr (kFive) {
            bits[m][side] =
                pair_at(stage + kRows * kQ4KBytes +
                        (lane.row + static_cast<uint32_t>(16 * m + 8 * side)) * kFifthBytes + 8 * lane.place);
          }
        }
      }
    }
    __device__ void load(int group) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int side = 0; side < 2; ++side)
          n[m][side] = pair_at(stage + (lane.pair ^ static_cast<uint32_t>(group * 32)) + (16 * m + 8 * side) * 128);
      }
    }
    __device__ void fragment(int m, int group, int which, uint32_t (&a)[4]) const {
      const uint32_t w[4] = {n[m][0].x, n[m][1].x, n[m][0].y, n[m][1].y};
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = (w[i] >> (4 * which)) & 0x0F0F0F0Fu;
      if constexpr (kFive) {
        const uint32_t fifth[4] = {bits[m][0].x, bits[m][1].x, bits[m][0].y, bits[m][1].y};
        const int at = sub(group, which);
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] |= (at <= 4 ? fifth[i] << (4 - at) : fifth[i] >> (at - 4)) & 0x10101010u;
      }
    }
    __device__ void add_product(int m, int group, int which, const uint32_t (&a)[4], const uint32_t (&b)[2],
                                int32_t (&sum)[4]) const {
      int32_t s[4];
      multiply_32(a, b[0], b[1], 0, s);
      const int at = sub(group, which);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sum[e] +=
            static_cast<int32_t>(__byte_perm(scales[m][e / 2][at / 4], 0, static_cast<uint32_t>(0x4440 + at % 4))) *
            s[e];
      }
    }
    __device__ void finish(int m, quant::BlockScales (&d)[2], uint32_t (&minima)[4]) const {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const uint4 h = header(m, side);
        d[side] = {low_half(h.x), -high_half(h.x)};
        k_minima(h, static_cast<int>(lane.place), minima[side], minima[2 + side]);
      }
    }
  };
};
using BatchQ4_K = BatchQ45_K<false>;
using BatchQ5_K = BatchQ45_K<true>;

struct BatchQ6_K {
  static constexpr tensor::DType kDType = tensor::DType::Q6_K;
  static constexpr bool kHasMin = false;
  static constexpr int kRowBytes = kQ6KRowBytes + 16;  // the last 16 hold the scale of the superblock
  __device__ static constexpr int sub(int group, int which) { return group / 2 * 4 + group % 2 + 2 * which; }

  template <int kRows>
  __device__ static void begin(BatchSource& s, const Parts& parts, int64_t block, int blocks) {
    s.low = part_begin<kRows, kQ6KNibbleBytes>(parts.base[0], block, blocks);
    s.upper = part_begin<kRows, kQ6KPairBytes>(parts.base[1], block, blocks);
    s.small = part_begin<kRows, kQ6KScaleBytes>(parts.base[2], block, blocks);
    s.scale = parts.base[3] + (block + static_cast<int>(threadIdx.x) % kRows * blocks) * kQ6KFactorBytes;
  }
  template <int kRows>
  __device__ static void copy(BatchSource& s, uint32_t to, int blocks) {
    copy_part<kRows, kQ6KNibbleBytes>(s.low, to, blocks);
    copy_part<kRows, kQ6KPairBytes>(s.upper, to + kRows * kQ6KNibbleBytes, blocks);
    copy_part<kRows, kQ6KScaleBytes>(s.small, to + kRows * kQ6KScalesAt, blocks);
    // Two bytes are too few for a copy of its own: the four (of every other superblock's two) that hold them.
    const uint32_t row = threadIdx.x % 32;
    if (row < kRows) {
      const auto* pair = reinterpret_cast<const uint8_t*>(reinterpret_cast<uintptr_t>(s.scale) & ~uintptr_t{3});
      copy_4(to + kRows * kQ6KRowBytes + row * 16, pair);
    }
    s.scale += kQ6KFactorBytes;
  }
  __device__ static void columns_at(uint32_t shared, const BatchLane& lane, int sub, uint32_t (&b)[2]) {
    const uint32_t at = lane.word ^ static_cast<uint32_t>(sub % 4 * 32);
    b[0] = word_at(shared + at), b[1] = word_at(shared + (at ^ 16));
  }

  template <int kM>
  struct Rows {
    static constexpr int kRows = 16 * kM;
    uint32_t stage;
    const BatchLane& lane;
    uint32_t n[kM][4], bits[kM][4];
    uint2 scales[kM][2];  // of a half of the superblock

    __device__ Rows(uint32_t from, const BatchLane& of) : stage(from), lane(of) {}
    __device__ void load(int group) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // rows and words as in a fragment
          const uint32_t row = static_cast<uint32_t>(16 * m + i % 2 * 8), w = static_cast<uint32_t>(i / 2);
          n[m][i] = word_at(stage + (lane.word ^ static_cast<uint32_t>(group * 32) ^ (w << 4)) + row * 128);
          if (group % 2 != 0) continue;
          const uint32_t piece = (static_cast<uint32_t>(group) + w) ^ (lane.row >> 1 & 3);
          bits[m][i] =
              word_at(stage + kRows * kQ6KNibbleBytes + (lane.row + row) * kQ6KPairBytes + 16 * piece + 4 * lane.place);
          if (w == 0)
            scales[m][i] = pair_at(stage + kRows * kQ6KScalesAt + (lane.row + row) * kQ6KScaleBytes +
                                   static_cast<uint32_t>(group * 4));
        }
      }
    }
    __device__ void fragment(int m, int group, int which, uint32_t (&a)[4]) const {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t low = (n[m][i] >> (4 * which)) & 0x0F0F0F0Fu, two = bits[m][i] >> (2 * (group % 2) + 4 * which);
        a[i] = less_offset(low | (two & 0x03030303u) << 4, 0x60606060u);
      }
    }
    __device__ void add_product(int m, int group, int which, const uint32_t (&a)[4], const uint32_t (&b)[2],
                                int32_t (&sum)[4]) const {
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        int32_t s[4];
        multiply_16(a[2 * w], a[2 * w + 1], b[w], s);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const uint32_t of_two = which == 0 ? scales[m][e / 2].x : scales[m][e / 2].y;
          sum[e] += static_cast<int32_t>(static_cast<int8_t>((of_two >> (16 * (group % 2) + 8 * w)) & 255u)) * s[e];
        }
      }
    }
    // odd: whether the superblock is the second of the two whose scales lie together.
    __device__ void finish(int m, quant::BlockScales (&d)[2], bool odd) const {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const uint32_t two =
            word_at(stage + kRows * kQ6KRowBytes + (lane.row + static_cast<uint32_t>(16 * m + 8 * side)) * 16);
        d[side] = {odd ? high_half(two) : low_half(two), 0.0f};
      }
    }
  };
};

}  // namespace assay::backend::cuda
