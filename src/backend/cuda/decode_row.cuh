// Decode of one token: the row that a matrix product reads, made by every block of threads for itself in shared memory. Making it again is
// cheaper than one more kernel, and all of it is exact or in the contract's order, so every copy has the same bits. Block 0 also writes to
// memory what other kernels or an observer read. Where it lies: decode_places.cuh.
// The code is kept short, for a kernel finds little of itself in the instruction caches: loops are rolled, and what does not depend on the
// kernel before is in registers when the wait is over.
#pragma once

#include "backend/cuda/decode.h"
#include "backend/cuda/gather.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/quantise.cuh"
#include "num/lanes.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

// A lane's part of 256 neighbouring elements of the row: two runs of four. Where the rows that products read (Row...) say kSpread, the second
// begins 128 elements after the first, so that a warp asks for 512 neighbouring bytes at a time; else they are neighbours.
struct Eight {
  float v[8];
};
template <bool kSpread>
__device__ inline int first_of_lane() {
  return (kSpread ? 4 : 8) * static_cast<int>(threadIdx.x % 32);
}
template <bool kSpread>
__device__ inline Eight load_eight(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + (kSpread ? 128 : 4));
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
// The same from the device's memory, through a pointer that compilers no longer know as one there.
template <bool kSpread>
__device__ inline Eight fetch_eight(const float* p) {
  const auto* four = reinterpret_cast<const float4*>(p);
  const float4 a = kSpread ? __ldcg(four) : __ldca(four), b = kSpread ? __ldcg(four + 32) : __ldca(four + 1);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
template <bool kSpread>
__device__ inline void store_eight(float* p, const Eight& x) {
  *reinterpret_cast<float4*>(p) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  *reinterpret_cast<float4*>(p + (kSpread ? 128 : 4)) = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}
// Sums of a shard (gather.h), past the first-level cache; whether all of them are there.
template <bool kSpread>
__device__ inline bool fetch_sums(const float* p, Eight& x) {
  const auto* four = reinterpret_cast<const float4*>(p);
  const float4 a = __ldcv(four), b = __ldcv(four + (kSpread ? 32 : 1));
  x = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  uint32_t top = 0;
#pragma unroll
  for (const float v : x.v) top = max(top, __float_as_uint(v));
  return top != kNoSum;
}
__device__ inline void add_eight(Eight& x, const Eight& y) {
#pragma unroll
  for (int e = 0; e < 8; ++e) x.v[e] = x.v[e] + y.v[e];
}
__device__ inline void norm_eight(Eight& x, float r, const Eight& w) {
#pragma unroll
  for (int e = 0; e < 8; ++e) x.v[e] = (x.v[e] * r) * w.v[e];
}

// What a lane makes of 8 elements of a block with factor r: words of four integers.
template <int kPlanes>
struct EightIntegers {
  uint32_t q[2] = {}, l[2] = {};
  __device__ EightIntegers(const Eight& x, float r) {
    if (r == 0.0f) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) quantise_4(x.v + 4 * i, r, kPlanes == 2, q[i], l[i]);
  }
};
__device__ inline int sum_of_bytes(uint32_t word, int sum) { return __dp4a(static_cast<int>(word), 0x01010101, sum); }

// Two sums within 16 bits each in one word, so that one shuffle adds both.
__device__ inline int both_sums(int low, int high) { return low + high * 65536; }
__device__ inline int16_t low_sum(int sums) { return static_cast<int16_t>(sums & 0xFFFF); }
__device__ inline int16_t high_sum(int sums) { return static_cast<int16_t>((sums - low_sum(sums)) >> 16); }

__device__ inline uint32_t magnitude(const Eight& x) {
  uint32_t amax = 0;
#pragma unroll
  for (const float v : x.v) amax = max(amax, __float_as_uint(v) & 0x7FFFFFFFu);
  return amax;
}

// A row with a norm lies in shared memory as floats first: so many, of which those past its end are zeros.
__host__ __device__ constexpr int row_floats(int d) { return (d + 255) / 256 * 256; }

// The sum of squares of such a row, right in lane 0. By one warp, which is Lanes32; the squares of zeros change no sum. Eight elements are read
// while eight are added (volatile: or compilers would put the reading back); after the last ones the same again.
__device__ inline float sum_of_squares(const float* row, int d) {
  const volatile float* at = row + threadIdx.x % 32;
  float x[8], y[8], sum = 0.0f;
  const auto read = [&](float (&to)[8]) {
#pragma unroll
    for (int k = 0; k < 8; ++k) to[k] = at[32 * k];
  };
  const auto add = [&](const float (&from)[8]) {
#pragma unroll
    for (int k = 0; k < 8; ++k) sum = num::fma(from[k], from[k], sum);
  };
  read(x);
#pragma unroll 1
  for (; d > 256; d -= 512) {
    at += 256;
    read(y);
    add(x);
    if (d > 512) at += 256;
    read(x);
    add(y);
  }
  if (d > 0) add(x);
  return fold_lanes(sum);
}
// The quotient by a power of two is the product with its inverse.
__device__ inline float inverse_rms_of(float sum, int d, float eps) {
  const float width = static_cast<float>(d);
  const float mean = (d & (d - 1)) == 0 ? sum * __uint_as_float(0x7F000000u - __float_as_uint(width)) : sum / width;
  return 1.0f / sqrtf(mean + eps);
}

// What a thread has ahead of the kernel's wait: places, and the norm's weights of its warp's first kTurns pieces of 256 elements.
template <class Row, int kTurns>
struct AheadOfRow {
  static constexpr bool kSpread = Row::kSpread;
  int first, step, d;  // the lane's first element; from turn to turn; of the row
  bool writes, adds;
  const float* a;      // of the lane's first element
  const float* b;
  ShardSums sums;      // in the place of b
  Eight held[kTurns];

  __device__ explicit AheadOfRow(const DecodeSource& source)
      : first(static_cast<int>(threadIdx.x / 32) * 256 + first_of_lane<kSpread>()),
        step(8 * static_cast<int>(blockDim.x)),
        d(source.d),
        writes(blockIdx.x == 0 && (source.sum != nullptr || source.y != nullptr)),
        adds(source.b != nullptr || has_sums(source.sums)),
        sums(source.sums) {
    a = source.a + first;
    b = (has_sums(sums) ? sums.of : source.b) + first;
    if (source.w != nullptr) take(source.w + first, first, held);
    compute_now(first), compute_now(step), compute_now(a), compute_now(b);
  }
  // Whether the warp has elements at its lane's j. Rows of blocks of 256 end with a warp.
  __device__ bool has(int j) const { return (Row::kBlock == 256 ? j : j & ~255) < d; }
  __device__ Eight load(const float* from, int j) const {
    if (Row::kBlock == 256 || j < d) return fetch_eight<kSpread>(from);
    return {};
  }
  // The lane's elements of n turns from j on; `from`: the first of them.
  template <int n>
  __device__ void take(const float* from, int j, Eight (&to)[n]) const {
#pragma unroll
    for (int t = 0; t < n; ++t) {
      if (has(j + t * step)) to[t] = load(from + t * step, j + t * step);
    }
  }
  // Of turns from `begin` elements further on: a, or a + b.
  __device__ void add_sources(int begin, Eight (&to)[kTurns]) const {
    take(a + begin, first + begin, to);
    if (!adds) return;
    Eight added[kTurns];
    take_added(begin, added);
#pragma unroll
    for (int t = 0; t < kTurns; ++t) add_eight(to[t], added[t]);
  }
  // Known to be false where the kernel is none of a shard's.
  static __device__ bool has_sums(const ShardSums& sums) { return Row::kOfShard && sums.n_shards > 0; }
  // What is added, of the shards by the contract's tree.
  template <int n>
  __device__ void take_added(int begin, Eight (&to)[n]) const {
    if (!has_sums(sums)) return take(b + begin, first + begin, to);
#pragma unroll 1
    for (int q = 0; q < sums.n_shards; q += 2) {
      Eight both[n];
      take_sums(b + begin + q * sums.width, first + begin, both);
#pragma unroll
      for (int t = 0; t < n; ++t) {
        if (q > 0) add_eight(to[t], both[t]);
        else to[t] = both[t];
      }
    }
  }
  // Those of two neighbouring shards, added; waits until they are there.
  template <int n>
  __device__ void take_sums(const float* from, int j, Eight (&to)[n]) const {
    uint64_t begin = 0;
#pragma unroll 1
    for (bool there = false; !there;) {
      Eight second[n];
      there = true;
#pragma unroll
      for (int t = 0; t < n; ++t) {
        if (!has(j + t * step)) continue;
        if (Row::kBlock != 256 && j + t * step >= d) {
          to[t] = {};
          continue;
        }
        there = fetch_sums<kSpread>(from + t * step, to[t]) & fetch_sums<kSpread>(from + t * step + sums.width, second[t]) & there;
        add_eight(to[t], second[t]);
      }
      if (there) return;
      if (begin == 0) begin = nanoseconds();
      there = waited_too_long(begin, sums.timed_out);
    }
  }
  __device__ void store(float* floats, int j, const Eight (&from)[kTurns]) const {
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      if (has(j + t * step)) store_eight<kSpread>(floats + j + t * step, from[t]);
    }
  }
  // The next turn's, of n that are held; the last comes from memory.
  template <int n>
  __device__ void shift_in(const float* from, int j, Eight (&of_turns)[n]) const {
#pragma unroll
    for (int t = 0; t + 1 < n; ++t) of_turns[t] = of_turns[t + 1];
    if (has(j)) of_turns[n - 1] = load(from, j);
  }
};

// x = a + rms_norm(b) in `floats`, the rare case.
template <class Row, int kTurns>
__device__ void add_pre_norm(const DecodeSource& source, const AheadOfRow<Row, kTurns>& ahead, float* floats) {
  __shared__ float factor;
#pragma unroll 1
  for (int j = ahead.first; ahead.has(j); j += ahead.step) {
    Eight added[1] = {};
    ahead.take_added(j - ahead.first, added);
    store_eight<Row::kSpread>(floats + j, added[0]);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const float sum = sum_of_squares(floats, ahead.d);
    if (threadIdx.x == 0) factor = inverse_rms_of(sum, ahead.d, source.pre_eps);
  }
  __syncthreads();
  const float r = factor;
#pragma unroll 1
  for (int j = ahead.first; j < ahead.d; j += ahead.step) {
    Eight v = load_eight<Row::kSpread>(floats + j), x = load_eight<Row::kSpread>(source.a + j);
    norm_eight(v, r, load_eight<Row::kSpread>(source.pre_w + j));
    if (blockIdx.x == 0 && source.pre_y != nullptr) store_eight<Row::kSpread>(source.pre_y + j, v);
    add_eight(x, v);
    store_eight<Row::kSpread>(floats + j, x);
  }
}

// Makes the row of `source` in x; `floats`: row_floats(d) of shared memory, only where there is a norm. All threads call it, after the wait for
// the kernel before.
template <class Row, int kTurns>
__device__ void make_row(const DecodeSource& source, AheadOfRow<Row, kTurns>& ahead, float* floats, const Row& x) {
  constexpr bool kSpread = Row::kSpread;
  const int step = ahead.step, d = ahead.d;
  int j = ahead.first;
  if (source.w == nullptr) {
    constexpr int kPlain = 2 * kTurns;  // that are asked for at once
    Eight of_turns[kPlain];
    ahead.take(ahead.a, j, of_turns);
    if (ahead.has(j)) {
#pragma unroll 1
      for (const float* later = ahead.a + kPlain * step;; later += step) {
        x.put(of_turns[0], j / 256, j < d);
        j += step;
        if (!ahead.has(j)) break;
        ahead.shift_in(later, j + (kPlain - 1) * step, of_turns);
      }
    }
    __syncthreads();
    return;
  }
  Eight v[kTurns];
  if (source.pre_w == nullptr) {
    int begin = 0;
    while (ahead.has(j + begin + kTurns * step)) begin += kTurns * step;  // of the widest rows
#pragma unroll 1
    for (; begin >= 0; begin -= kTurns * step) {  // what stays in v comes last
      ahead.add_sources(begin, v);
      ahead.store(floats, j + begin, v);
    }
  } else {
    add_pre_norm(source, ahead, floats);
    if (ahead.has(j)) v[0] = load_eight<kSpread>(floats + j);
  }
  __syncthreads();
  if (threadIdx.x >= blockDim.x - 32) {
    const float sum = sum_of_squares(floats, d);
    if (threadIdx.x % 32 == 0) floats[0] = inverse_rms_of(sum, d, source.eps);  // whose element is in a register
  }
  __syncthreads();
  const float r = floats[0];
  if (ahead.has(j)) {
#pragma unroll 1
    for (const float* later = source.w + j + kTurns * step;; later += step) {
      const bool writes = ahead.writes && j < d;
      if (writes && source.sum != nullptr) store_eight<kSpread>(source.sum + j, v[0]);
      norm_eight(v[0], r, ahead.held[0]);
      if (writes && source.y != nullptr) store_eight<kSpread>(source.y + j, v[0]);
      x.put(v[0], j / 256, j < d);
      j += step;
      if (!ahead.has(j)) break;
      ahead.shift_in(later, j + (kTurns - 1) * step, ahead.held);
      v[0] = load_eight<kSpread>(floats + j);
    }
  }
  __syncthreads();
}

}  // namespace assay::backend::cuda
