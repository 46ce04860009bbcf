// Decode of one token: where the finished row lies in shared memory. Of integers each block has a record, so that a
// lane's loads are one register and constants. A lane reads 16 bytes at a time, eight neighbouring lanes four rows of
// two neighbouring chunks: so that the eight chunks are on eight different groups of banks, where their lengths let
// them, records of superblocks stand further by 16 bytes times their chunk. What is of 32 bytes is read by lanes of odd
// chunks in swapped halves, and those records stand 32 bytes further for every pair of chunks.
#pragma once

#include "backend/cuda/decode/decode_row.cuh"

namespace assay::backend::cuda {

// Which chunk of the contract a block of the row lies in; the division is ahead of the wait.
struct ChunkOf {
  float inverse;
  __device__ explicit ChunkOf(int n) : inverse(1.0f / static_cast<float>(n)) { compute_now(inverse); }
  __device__ int operator()(int i) const { return quant::chunk_of(i, inverse); }
};

// Where the record of block i begins that is of this chunk; the bytes of them all.
__device__ inline int record_place(int i, int chunk, int record_bytes) { return i * record_bytes + chunk / 2 * 32; }
__host__ __device__ constexpr int records_bytes(int n, int record_bytes) { return n * record_bytes + 96; }

template <int kPlanes_>
struct RowA256 : MadeByWalkers {
  static constexpr bool kOfShard = false;
  static constexpr int kPlanes = kPlanes_, kBlock = 256;
  // A record: the planes, their sums of 32 (8 of int16 a plane), their sums of 16, the scale.
  static constexpr int kSums32 = 256 * kPlanes, kSums16 = kSums32 + 16 * kPlanes, kScale = kSums16 + 32 * kPlanes;
  static constexpr int kRecord = kPlanes == 2 ? 640 : 320;
  static constexpr bool kSpread = true;
  uint8_t* memory;
  ChunkOf chunk_of;

  // Records of neighbouring chunks stand 16 bytes further: lanes that read the same piece of eight chunks read eight
  // groups of banks.
  static __device__ int place(int i, int chunk) { return i * kRecord + 16 * chunk; }
  static __host__ __device__ constexpr int bytes(int n_blocks) { return n_blocks * kRecord + 112; }
  __device__ RowA256(uint8_t* place, int n_blocks) : memory(place), chunk_of(n_blocks) {}
  __device__ int place(int i) const { return place(i, chunk_of(i)); }
  // n blocks of the row, one or two, by a whole warp. Of two, lanes of even numbers have what is one for a block of the
  // first, others of the second.
  template <int n>
  __device__ void put(const Eight* x, const int* place) const {
    const bool second = n == 2 && threadIdx.x % 2 != 0;
    uint8_t* own = memory + (second ? place[n - 1] : place[0]);
    uint32_t amax[n];
#pragma unroll
    for (int t = 0; t < n; ++t) amax[t] = warp_max(magnitude(x[t]));
    const quant::BlockScale scale = quant::block_scale(second ? amax[n - 1] : amax[0]);
    EightIntegers<kPlanes> e[n];
#pragma unroll
    for (int t = 0; t < n; ++t) {
      e[t].make(x[t], n == 1 ? scale.r : __shfl_sync(kWholeWarp, scale.r, t));
      store_words(memory + place[t], e[t].q);
      if (kPlanes == 2) store_words(memory + place[t] + 256, e[t].l);
    }
    int sums[n], refined[n];
#pragma unroll
    for (int t = 0; t < n; ++t) sums[t] = sums_of(e[t].q), refined[t] = sums_of(e[t].l);
    store_sums(sums, second, own + kSums16, own + kSums32);
    if (kPlanes == 2) store_sums(refined, second, own + kSums16 + 32, own + kSums32 + 16);
    if (threadIdx.x % 32 < n) *reinterpret_cast<float*>(own + kScale) = scale.d;
  }

 private:
  static __device__ void store_words(uint8_t* plane, const uint32_t (&words)[2]) {
    auto* to = reinterpret_cast<uint32_t*>(plane) + threadIdx.x % 32;
    to[0] = words[0];
    to[32] = words[1];
  }
  static __device__ int sums_of(const uint32_t (&words)[2]) {
    return both_sums(sum_of_bytes(words[0], 0), sum_of_bytes(words[1], 0));
  }
  // Sums of four elements each become those of 16 and 32.
  template <int n>
  static __device__ void store_sums(const int (&of_lane)[n], bool second, uint8_t* of_16, uint8_t* of_32) {
    const unsigned lane = threadIdx.x % 32;
    int sums = second ? of_lane[n - 1] : of_lane[0];
    sums += __shfl_xor_sync(kWholeWarp, second ? of_lane[0] : of_lane[n - 1], 1);
    sums += __shfl_xor_sync(kWholeWarp, sums, 2);
    const int sums_of_32 = sums + __shfl_xor_sync(kWholeWarp, sums, 4);
    auto* to_16 = reinterpret_cast<int16_t*>(of_16) + lane / 4;
    auto* to_32 = reinterpret_cast<int16_t*>(of_32) + lane / 8;
    if (lane % 4 < n) to_16[0] = low_sum(sums), to_16[8] = high_sum(sums);
    if (lane % 8 < n) to_32[0] = low_sum(sums_of_32), to_32[4] = high_sum(sums_of_32);
  }
};

template <int kPlanes_>
struct RowA32 : MadeByWalkers {
  static constexpr bool kOfShard = false;
  static constexpr int kPlanes = kPlanes_, kBlock = 32;
  // A record: the planes, the scale, the sums of the planes (int16).
  static constexpr int kScale = 32 * kPlanes, kSums = kScale + 4, kRecord = kPlanes == 2 ? 80 : 48;
  static constexpr bool kSpread = false;
  uint8_t* memory;
  ChunkOf chunk_of;

  static __host__ __device__ constexpr int bytes(int n_blocks) { return records_bytes(n_blocks, kRecord); }
  __device__ RowA32(uint8_t* place, int n_blocks) : memory(place), chunk_of(n_blocks) {}
  // Of the lane's block of the eight in piece i.
  __device__ int place(int i) const {
    const int block = 8 * i + static_cast<int>(threadIdx.x % 32) / 4;
    return record_place(block, chunk_of(block), kRecord);
  }
  __device__ void put(const Eight& x, int place, bool inside) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    uint8_t* record = memory + place;
    uint32_t amax = magnitude(x);
    amax = max(amax, __shfl_xor_sync(kWholeWarp, amax, 1));
    amax = max(amax, __shfl_xor_sync(kWholeWarp, amax, 2));
    const quant::BlockScale scale = quant::block_scale(amax);
    EightIntegers<kPlanes> e;
    e.make(x, scale.r);
    int both = both_sums(sum_of_bytes(e.l[0], sum_of_bytes(e.l[1], 0)), sum_of_bytes(e.q[0], sum_of_bytes(e.q[1], 0)));
    both += __shfl_xor_sync(kWholeWarp, both, 1);
    both += __shfl_xor_sync(kWholeWarp, both, 2);
    if (!inside) return;
    *reinterpret_cast<uint2*>(record + lane % 4 * 8) = {e.q[0], e.q[1]};
    if (kPlanes == 2) *reinterpret_cast<uint2*>(record + 32 + lane % 4 * 8) = {e.l[0], e.l[1]};
    if (lane % 4 != 0) return;
    *reinterpret_cast<float*>(record + kScale) = scale.d;
    auto* sums = reinterpret_cast<int16_t*>(record + kSums);
    sums[0] = high_sum(both);
    sums[1] = low_sum(both);
  }
};

struct RowF32 : MadeByWalkers {
  static constexpr bool kOfShard = false;
  static constexpr int kPlanes = 1, kBlock = 32, kRecord = 128;
  static constexpr bool kSpread = false;
  float* x;
  ChunkOf chunk_of;

  static __host__ __device__ constexpr int bytes(int n_blocks) { return n_blocks * 128; }
  __device__ RowF32(uint8_t* memory, int n_blocks) : x(reinterpret_cast<float*>(memory)), chunk_of(n_blocks) {}
  // Of the first of a lane's two fours; the other one is its neighbour, in odd chunks the one before.
  __device__ int place(int i) const {
    const int lane = static_cast<int>(threadIdx.x % 32), block = 8 * i + lane / 4;
    return 32 * block + 4 * (lane % 4 * 2 + (chunk_of(block) & 1));
  }
  __device__ void put(const Eight& e, int place, bool inside) const {
    if (!inside) return;
    write_4(x + place, e.v);
    write_4(x + (place ^ 4), e.v + 4);
  }
};

// Of the kernels of a model's shards, which send what they make or wait for what others send; those of one GPU have
// nothing of it.
template <class Row>
struct OfShard : Row {
  static constexpr bool kOfShard = true;
  using Row::Row;
};

}  // namespace assay::backend::cuda
