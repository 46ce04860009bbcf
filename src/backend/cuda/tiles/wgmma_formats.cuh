// What the kernels for Hopper's group products (batch_wgmma.cu, wgmma_32.cu) know of the superblock formats. A weight
// times its sub-scale is the sum of two bytes, 2^kShift * high + low with low unsigned, so a superblock is two chains
// of products with nothing between its elements. Bytes stay packed in shared memory, each part of 128 rows by itself,
// as the device's copy engine lays it: pieces of 16 bytes exchanged so that eight neighbouring rows lie in different
// banks.
#pragma once

#include "backend/cuda/linear/block_parts.h"
#include "backend/cuda/tiles/mma_formats.cuh"

namespace assay::backend::cuda {

// Fragments of 16 rows x 32 weights, each a weight times its sub-scale.
struct Fragments {
  uint32_t high[4], low[4];
};

// A part of the format's blocks: which of Matrix's parts, bytes of a row and superblock, and where the 128 rows of a
// stage lie.
struct WgmmaPart {
  int part, bytes, at;
};

// Where piece `piece` of row `row` lies in rows of kBytes: 128, 64, 32 or 16.
template <int kBytes>
__device__ inline uint32_t piece_at(uint32_t row, uint32_t piece) {
  constexpr uint32_t kPieces =
      kBytes / 16;  // a line of 128 bytes holds 8 / kPieces rows, whose pieces are exchanged alike
  return row * kBytes + 16 * (piece ^ (row / (8 / kPieces) % kPieces));
}

__device__ inline uint32_t byte_of(uint32_t word, int i) {
  return __byte_perm(word, 0, 0x4440u + static_cast<uint32_t>(i));
}
// Byte i of minima as two half-precision numbers: behind the byte of 1,024 they are 1,024 more.
__device__ inline uint32_t two_minima(uint32_t minima, uint32_t i) {
  const uint32_t above = __byte_perm(minima, 0x64646464u, 0x4040u + 0x0101u * i), base = 0x64006400u;
  const __half2 pair = __hsub2(*reinterpret_cast<const __half2*>(&above), *reinterpret_cast<const __half2*>(&base));
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// What a thread knows of its two rows (lane / 4 of the warp's 16 and 8 further) while a superblock is multiplied. Step
// i of four makes the fragments of weights first(i) on and second(i) on. `rows`: where the stage lies; `row`: of the
// warp's first row. Weights of at most 5 bits: the sub-scale's digits, 3 bits each, times four weights at once stay
// below 2^8.
struct WgmmaQ4_K {
  static constexpr tensor::DType kDType = tensor::DType::Q4_K;
  static constexpr bool kHasMin = true, kSigned = false;
  static constexpr int kShift = 3;
  static constexpr int kParts = 2, kStageBytes = 128 * kQ4KBytes;
  __host__ __device__ static constexpr WgmmaPart part(int i) {
    return i == 0 ? WgmmaPart{1, kNibbleBytes, 0} : WgmmaPart{0, kHeadBytes, 128 * kNibbleBytes};
  }
  __host__ __device__ static constexpr int block_bytes(int i) { return part(i).bytes; }
  __device__ static constexpr int first(int i) { return 64 * i; }
  __device__ static constexpr int second(int i) { return 64 * i + 32; }

  uint32_t high_scales[2][2], low_scales[2][2];
  quant::BlockScales d[2];
  uint32_t minima[4];

  __device__ static uint32_t header_at(uint32_t headers, uint32_t row, int side) {
    return headers + 16 * (row + threadIdx.x % 32 / 4 + 8 * static_cast<uint32_t>(side));
  }
  __device__ void read_scales(uint32_t headers, uint32_t row) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const uint4 h = words_at(header_at(headers, row, side));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t scales = k_scale_word(h, half);
        high_scales[side][half] = (scales >> 3) & 0x07070707u;
        low_scales[side][half] = scales & 0x07070707u;
      }
    }
  }
  __device__ void read_floats_of(uint32_t headers, uint32_t row) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const uint32_t at = header_at(headers, row, side), floats = word_at(at);
      const uint4 h = {0, 0, word_at(at + 8), word_at(at + 12)};
      d[side] = {low_half(floats), -high_half(floats)};
      minima[side] = two_minima(k_min_word(h, 0), threadIdx.x % 4);
      minima[2 + side] = two_minima(k_min_word(h, 1), threadIdx.x % 4);
    }
  }
  __device__ void read(uint32_t rows, uint32_t row) { read_scales(rows + part(1).at, row); }
  __device__ void read_floats(uint32_t rows, uint32_t row) { read_floats_of(rows + part(1).at, row); }
  __device__ void put(uint32_t weights, int j, int run, Fragments& f) const {
    const uint32_t high = byte_of(high_scales[j % 2][run / 4], run % 4),
                   low = byte_of(low_scales[j % 2][run / 4], run % 4);
    f.high[j] = weights * high, f.low[j] = weights * low;
  }
  __device__ static void load_low_bits(uint32_t rows, uint32_t row, int i, uint32_t (&n)[4]) {
    const uint32_t lane = threadIdx.x % 32;
    load_matrices(rows + piece_at<kNibbleBytes>(row + lane % 16, 2 * i + lane / 16), n);
  }

  __device__ void unpack(uint32_t rows, uint32_t row, int i, Fragments& a, Fragments& b) const {
    uint32_t n[4];
    load_low_bits(rows, row, i, n);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      put(n[j] & 0x0F0F0F0Fu, j, 2 * i, a);
      put((n[j] >> 4) & 0x0F0F0F0Fu, j, 2 * i + 1, b);
    }
  }
};

struct WgmmaQ5_K : WgmmaQ4_K {
  static constexpr tensor::DType kDType = tensor::DType::Q5_K;
  static constexpr int kParts = 3, kStageBytes = 128 * kQ5KBytes;
  __host__ __device__ static constexpr WgmmaPart part(int i) {
    return i == 0   ? WgmmaPart{2, kNibbleBytes, 0}
           : i == 1 ? WgmmaPart{1, kFifthBytes, 128 * kNibbleBytes}
                    : WgmmaPart{0, kHeadBytes, 128 * (kNibbleBytes + kFifthBytes)};
  }

  __host__ __device__ static constexpr int block_bytes(int i) { return part(i).bytes; }

  uint32_t bits[4];

  __device__ void read(uint32_t rows, uint32_t row) {
    const uint32_t lane = threadIdx.x % 32;
    read_scales(rows + part(2).at, row);
    load_matrices(rows + part(1).at + piece_at<kFifthBytes>(row + lane % 16, lane / 16), bits);
  }
  __device__ void read_floats(uint32_t rows, uint32_t row) { read_floats_of(rows + part(2).at, row); }
  __device__ void unpack(uint32_t rows, uint32_t row, int i, Fragments& a, Fragments& b) const {
    uint32_t n[4];
    load_low_bits(rows, row, i, n);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t first_bits = ((bits[j] >> (2 * i)) & 0x01010101u) << 4,
                     second_bits = ((bits[j] >> (2 * i + 1)) & 0x01010101u) << 4;
      put((n[j] & 0x0F0F0F0Fu) | first_bits, j, 2 * i, a);
      put(((n[j] >> 4) & 0x0F0F0F0Fu) | second_bits, j, 2 * i + 1, b);
    }
  }
};

// Weights are w - 32 with w of 6 bits, sub-scales have signs: products of 16 bits, two a word, to which 2^15 is added
// that the high byte loses.
struct WgmmaQ6_K {
  static constexpr tensor::DType kDType = tensor::DType::Q6_K;
  static constexpr bool kHasMin = false, kSigned = true;
  static constexpr int kShift = 8;
  static constexpr int kParts = 3, kStageBytes = 128 * kQ6KRowBytes;
  __host__ __device__ static constexpr WgmmaPart part(int i) {
    return i == 0   ? WgmmaPart{0, kQ6KNibbleBytes, 0}
           : i == 1 ? WgmmaPart{1, kQ6KPairBytes, 128 * kQ6KNibbleBytes}
                    : WgmmaPart{2, kQ6KScaleBytes, 128 * kQ6KScalesAt};
  }
  __host__ __device__ static constexpr int block_bytes(int i) { return part(i).bytes; }
  __device__ static constexpr int first(int i) { return 128 * (i / 2) + 32 * (i % 2); }
  __device__ static constexpr int second(int i) { return first(i) + 64; }

  uint32_t row_scales;  // where they lie
  quant::BlockScales d[2];

  __device__ void read(uint32_t rows, uint32_t row) {
    row_scales = rows + part(2).at + 16 * (row + threadIdx.x % 32 / 4);
  }
  __device__ static void put(uint32_t bytes, uint32_t scales, int j, Fragments& f) {
    const int scale = static_cast<int8_t>((scales >> (8 * (j / 2))) & 255u);
    const uint32_t factor = static_cast<uint32_t>(scale), start = static_cast<uint32_t>(32768 - 32 * scale) * 0x10001u;
    const uint32_t even = (bytes & 0x00FF00FFu) * factor + start, odd = ((bytes >> 8) & 0x00FF00FFu) * factor + start;
    f.high[j] = __byte_perm(even, odd, 0x7351) ^ 0x80808080u, f.low[j] = __byte_perm(even, odd, 0x6240);
  }
  __device__ void unpack(uint32_t rows, uint32_t row, int i, Fragments& a, Fragments& b) const {
    const uint32_t lane = threadIdx.x % 32, own = row + lane % 16, side_of_lane = lane / 16;
    uint32_t n[4], bits[4];
    load_matrices(rows + piece_at<kQ6KNibbleBytes>(own, 2 * i + side_of_lane), n);
    load_matrices(rows + part(1).at + piece_at<kQ6KPairBytes>(own, 2 * (i / 2) + side_of_lane), bits);
    uint32_t s[2][2];  // of row and run, two scales each
#pragma unroll
    for (int side = 0; side < 2; ++side) {
#pragma unroll
      for (int run = 0; run < 2; ++run)
        s[side][run] = word_at(row_scales + 128 * side + 8 * (i / 2) + 4 * run) >> (16 * (i % 2));
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t pairs = bits[j] >> (2 * (i % 2));
      put((n[j] & 0x0F0F0F0Fu) | ((pairs & 0x03030303u) << 4), s[j % 2][0], j, a);
      put(((n[j] >> 4) & 0x0F0F0F0Fu) | (pairs & 0x30303030u), s[j % 2][1], j, b);
    }
  }
};

// Blocks of 32, two a stage. fragment: of 16 rows of block `block` of the stage, those from `row` on.
template <class Mma>
struct WgmmaNarrow : Mma {
  static constexpr int kParts = 1, kStageBytes = 128 * 2 * Mma::kBlockBytes;
  __host__ __device__ static constexpr WgmmaPart part(int) { return {1, 2 * Mma::kBlockBytes, 0}; }
  __host__ __device__ static constexpr int block_bytes(int) { return Mma::kBlockBytes; }
  __device__ static void fragment(uint32_t rows, uint32_t row, uint32_t block, uint32_t (&a)[4]) {
    constexpr uint32_t kPieces = Mma::kBlockBytes / 16;  // of a block
    const uint32_t lane = threadIdx.x % 32;
    Mma::fragment(
        rows + piece_at<2 * Mma::kBlockBytes>(row + lane % 16, kPieces * block + (kPieces == 2 ? lane / 16 : 0)), a);
  }
};
using WgmmaQ4_0 = WgmmaNarrow<MmaQ4_0>;
using WgmmaQ4_1 = WgmmaNarrow<MmaQ4_1>;
using WgmmaQ8_0 = WgmmaNarrow<MmaQ8_0>;

}  // namespace assay::backend::cuda
