// Decode of one token: where the finished row lies in shared memory. Of integers each block has a record, so that a lane's loads are one
// register and constants. A lane reads 16 bytes at a time, eight neighbouring lanes four rows of two neighbouring chunks: so what is of 32
// bytes is read by lanes of odd chunks in swapped halves, and the records of every other pair of chunks stand 32 bytes further: the eight chunks
// are then on eight different groups of banks, where the chunks' lengths let them.
#pragma once

#include "backend/cuda/decode_row.cuh"

namespace assay::backend::cuda {

// The chunk of the contract that block i of n lies in.
__device__ inline int chunk_of(int i, int n) { return (8 * (i + 1) + n - 1) / n - 1; }

// Where the record of block i begins that is of this chunk; the bytes of them all.
__device__ inline int record_place(int i, int chunk, int record_bytes) { return i * record_bytes + chunk / 2 * 32; }
__host__ __device__ constexpr int records_bytes(int n, int record_bytes) { return n * record_bytes + 96; }

template <int kPlanes_>
struct RowA256 {
  static constexpr int kPlanes = kPlanes_, kBlock = 256;
  // A record: the planes, their sums of 32 (8 of int16 a plane), their sums of 16, the scale.
  static constexpr int kSums32 = 256 * kPlanes, kSums16 = kSums32 + 16 * kPlanes, kScale = kSums16 + 32 * kPlanes;
  static constexpr int kRecord = kPlanes == 2 ? 640 : 320;
  uint8_t* memory;
  int n;

  static __host__ __device__ constexpr int bytes(int n_blocks) { return records_bytes(n_blocks, kRecord); }
  __device__ RowA256(uint8_t* place, int width) : memory(place), n(width / 256) {}
  // Elements 256 i + 8 lane .. of the row, by a whole warp.
  __device__ void put(const Eight& x, int i, bool) const {
    const int lane = threadIdx.x % 32;
    const quant::BlockScale scale = quant::block_scale(warp_max(magnitude(x)));
    const EightIntegers e = quantise_eight<kPlanes>(x, scale.r);
    const int sum_16 = e.sum + __shfl_xor_sync(kWholeWarp, e.sum, 1), sum_32 = sum_16 + __shfl_xor_sync(kWholeWarp, sum_16, 2);
    uint8_t* record = memory + record_place(i, chunk_of(i, n), kRecord);
    *reinterpret_cast<uint2*>(record + 8 * lane) = e.q;
    if (kPlanes == 2) *reinterpret_cast<uint2*>(record + 256 + 8 * lane) = e.l;
    if (lane == 0) *reinterpret_cast<float*>(record + kScale) = scale.d;
    auto* sums_16 = reinterpret_cast<int16_t*>(record + kSums16);
    auto* sums_32 = reinterpret_cast<int16_t*>(record + kSums32);
    if (lane % 2 == 0) {
      sums_16[lane / 2] = high_sum(sum_16);
      if (kPlanes == 2) sums_16[16 + lane / 2] = low_sum(sum_16);
    }
    if (lane % 4 == 0) {
      sums_32[lane / 4] = high_sum(sum_32);
      if (kPlanes == 2) sums_32[8 + lane / 4] = low_sum(sum_32);
    }
  }
};

template <int kPlanes_>
struct RowA32 {
  static constexpr int kPlanes = kPlanes_, kBlock = 32;
  // A record: the planes, the scale, the sums of the planes (int16).
  static constexpr int kScale = 32 * kPlanes, kSums = kScale + 4, kRecord = kPlanes == 2 ? 80 : 48;
  uint8_t* memory;
  int n;

  static __host__ __device__ constexpr int bytes(int n_blocks) { return records_bytes(n_blocks, kRecord); }
  __device__ RowA32(uint8_t* place, int width) : memory(place), n(width / 32) {}
  __device__ void put(const Eight& x, int i, bool inside) const {
    const int lane = threadIdx.x % 32, block = 8 * i + lane / 4;
    uint32_t amax = magnitude(x);
    amax = max(amax, __shfl_xor_sync(kWholeWarp, amax, 1));
    amax = max(amax, __shfl_xor_sync(kWholeWarp, amax, 2));
    const quant::BlockScale scale = quant::block_scale(amax);
    const EightIntegers e = quantise_eight<kPlanes>(x, scale.r);
    int sum = e.sum + __shfl_xor_sync(kWholeWarp, e.sum, 1);
    sum = sum + __shfl_xor_sync(kWholeWarp, sum, 2);
    if (!inside) return;
    uint8_t* record = memory + record_place(block, chunk_of(block, n), kRecord);
    *reinterpret_cast<uint2*>(record + lane % 4 * 8) = e.q;
    if (kPlanes == 2) *reinterpret_cast<uint2*>(record + 32 + lane % 4 * 8) = e.l;
    if (lane % 4 != 0) return;
    *reinterpret_cast<float*>(record + kScale) = scale.d;
    auto* sums = reinterpret_cast<int16_t*>(record + kSums);
    sums[0] = high_sum(sum);
    sums[1] = low_sum(sum);
  }
};

struct RowF32 {
  static constexpr int kPlanes = 1, kBlock = 32, kRecord = 128;
  float* x;  // [32 n]
  int n;

  static __host__ __device__ constexpr int bytes(int n_blocks) { return n_blocks * 128; }
  __device__ RowF32(uint8_t* memory, int width) : x(reinterpret_cast<float*>(memory)), n(width / 32) {}
  // Piece j of 8 of a block.
  static __device__ int place(int j, int chunk) { return 4 * (j ^ (chunk & 1)); }
  __device__ void put(const Eight& e, int i, bool inside) const {
    if (!inside) return;
    const int lane = threadIdx.x % 32, block = 8 * i + lane / 4, chunk = chunk_of(block, n);
    float* at = x + 32 * block;
    *reinterpret_cast<float4*>(at + place(lane % 4 * 2, chunk)) = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
    *reinterpret_cast<float4*>(at + place(lane % 4 * 2 + 1, chunk)) = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
  }
};

}  // namespace assay::backend::cuda
