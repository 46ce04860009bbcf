// Decode of one token: the row that a matrix product reads, made by every block of threads for itself in shared memory.
// Making it again is cheaper than one more kernel, and all of it is exact or in the contract's order, so every copy has
// the same bits. Block 0 also writes to memory what other kernels or an observer read. Where it lies:
// decode_places.cuh. The code is kept short, for a kernel finds little of itself in the instruction caches, and what
// does not depend on the kernel before is in registers when the wait is over.
#pragma once

#include "backend/cuda/decode/decode.h"
#include "backend/cuda/linear/quantise.cuh"
#include "backend/cuda/rows/gather.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "num/lanes.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

// A lane's part of 256 neighbouring elements of the row: two runs of four. Where the rows that products read (Row...)
// say kSpread, the second begins 128 elements after the first, so that a warp asks for 512 neighbouring bytes at a
// time; else they are neighbours.
struct Eight {
  float v[8];
};
template <bool kSpread>
__device__ inline int first_of_lane() {
  return (kSpread ? 4 : 8) * static_cast<int>(threadIdx.x % 32);
}
template <bool kSpread>
__device__ inline Eight load_eight(const float* p) {
  Eight x;
  read_4(p, x.v);
  read_4(p + (kSpread ? 128 : 4), x.v + 4);
  return x;
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
  write_4(p, x.v);
  write_4(p + (kSpread ? 128 : 4), x.v + 4);
}
// Sums of a shard (gather.h), past the first-level cache, and by a load that is repeated where it stands in a loop
// (__ldcv may be moved ahead of it).
__device__ inline float4 fetch_again(const float4* p) {
  float4 x;
  asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(p)
               : "memory");
  return x;
}
template <bool kSpread>
__device__ inline Eight fetch_sums(const float* p) {
  const auto* four = reinterpret_cast<const float4*>(p);
  const float4 a = fetch_again(four), b = fetch_again(four + (kSpread ? 32 : 1));
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
// Whether all of them are.
__device__ inline bool are_there(const Eight& x) {
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
  __device__ void make(const Eight& x, float r) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      quantise_4(x.v + 4 * i, r, kPlanes == 2, q[i], l[i]);
      if (r == 0.0f) q[i] = l[i] = 0;
    }
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

// A row with a norm lies in shared memory as floats first: so many, of which those past its end are zeros. Of elements
// i, i + 32, ... which lane i of one warp sums, four lie together, and the fours of 32 lanes in an order that neither
// those who write runs of elements nor those who read fours meet in a bank.
__host__ __device__ constexpr int row_floats(int d) { return (d + 255) / 256 * 256; }
__device__ inline int four_of_lane(int lane) { return 4 * (lane ^ (lane >> 3)); }
// Where the first of a lane's eight elements is; the others are near it, for its number is a multiple of four, or of
// eight.
__device__ inline int place_of_eight(int j) { return (j & ~127) + four_of_lane(j & 31) + (j >> 5 & 3); }
template <bool kSpread>
__device__ inline int place_in_eight(int first, int e) {
  return kSpread ? (first ^ (e % 4 * 4)) + e / 4 * 128 : first ^ (e * 4);
}
template <bool kSpread>
__device__ inline void store_floats(float* floats, int first, const Eight& x) {
#pragma unroll
  for (int e = 0; e < 8; ++e) floats[place_in_eight<kSpread>(first, e)] = x.v[e];
}
template <bool kSpread>
__device__ inline Eight load_floats(const float* floats, int first) {
  Eight x;
#pragma unroll
  for (int e = 0; e < 8; ++e) x.v[e] = floats[place_in_eight<kSpread>(first, e)];
  return x;
}

// Adds the squares of 128 n elements: all are asked for before the first is added.
template <int n>
__device__ inline void add_squares(const float* fours, float& sum) {
  float4 x[n];
#pragma unroll
  for (int k = 0; k < n; ++k) x[k] = *reinterpret_cast<const float4*>(fours + 128 * k);
#pragma unroll
  for (int k = 0; k < n; ++k) {
    sum = num::fma(x[k].x, x[k].x, sum);
    sum = num::fma(x[k].y, x[k].y, sum);
    sum = num::fma(x[k].z, x[k].z, sum);
    sum = num::fma(x[k].w, x[k].w, sum);
  }
}
// The sum of squares of such a row, right in lane 0. By one warp, which is Lanes32; the squares of zeros change no sum.
__device__ inline float sum_of_squares(const float* row, int d) {
  const float* fours = row + four_of_lane(static_cast<int>(threadIdx.x % 32));
  float sum = 0.0f;
#pragma unroll 1
  for (; d >= 1024; d -= 1024, fours += 1024) add_squares<8>(fours, sum);
#pragma unroll 1
  for (; d > 0; d -= 256, fours += 256) add_squares<2>(fours, sum);
  return fold_lanes(sum);
}
// The quotient by a power of two is the product with its inverse.
__device__ inline float inverse_rms_of(float sum, int d, float eps) {
  const float width = static_cast<float>(d);
  const float mean = (d & (d - 1)) == 0 ? sum * __uint_as_float(0x7F000000u - __float_as_uint(width)) : sum / width;
  return 1.0f / sqrtf(mean + eps);
}

// Puts a value into a register for good, by a whole warp: what is only computed from a kernel's parameters is computed
// again where it is used, and after the wait their cache may have lost them.
__device__ inline int kept(int x) { return __shfl_sync(kWholeWarp, x, static_cast<int>(threadIdx.x % 32)); }
__device__ inline float kept(float x) { return __int_as_float(kept(__float_as_int(x))); }
template <class T>
__device__ inline T* kept(T* p) {
  const auto bits = reinterpret_cast<uintptr_t>(p);
  const auto low = static_cast<uint32_t>(kept(static_cast<int>(bits))),
             high = static_cast<uint32_t>(kept(static_cast<int>(bits >> 32)));
  return reinterpret_cast<T*>(static_cast<uintptr_t>(high) << 32 | low);
}

// The same value, of which the compiler no longer knows that it has it already.
template <class T>
__device__ inline T found_anew(T x) {
  compute_now(x);
  return x;
}

// What a thread has ahead of the kernel's wait: places of its pieces of 256 elements, one a turn, and for its warp's
// first kTurns turns where they go (Row, decode_places.cuh) and the norm's weights. kTurns pieces are made at once.
template <class Row, int kTurns>
struct AheadOfRow {
  static constexpr bool kSpread = Row::kSpread;
  // Shards' sums of two turns at once take so many registers that what is seldom wanted is found anew where it is, and
  // the norm's weights come later.
  static constexpr bool kTight = Row::kOfShard && kTurns > 1;
  const DecodeSource& source;
  int first, step, d;  // the lane's first element; from turn to turn; of the row
  int floats_first;    // where the lane's first element is among floats
  int place[kTurns];
  const float* a;  // of the lane's first element
  const float* b;
  const float* w;
  float* y;  // null: nobody reads it, or another block writes it
  int flags;
  float eps;
  ShardSums sums;       // in the place of b
  Eight x[2 * kTurns];  // elements; with a norm, the second half is its weights

  enum Flag {
    kNorm = 1,
    kPreNorm = 2,
    kTwo = 4,
    kWrites = 8,
    kSquares = 16
  };  // writes values that others read; adds the squares
  __device__ bool is(Flag flag) const { return (flags & flag) != 0; }

  __device__ AheadOfRow(const DecodeSource& of, const Row& row)
      : source(of), first(kept(static_cast<int>(threadIdx.x / 32) * 256 + first_of_lane<kSpread>())),
        step(Row::turn(source)), d(kept(source.d)), floats_first(held(place_of_eight(first))),
        a(kept(source.a + first)), b(kept((has_sums(source.sums) ? source.sums.of : source.b) + first)),
        w(held(source.w + first)), y(held(blockIdx.x == 0 && source.y != nullptr ? source.y + first : nullptr)),
        eps(source.eps), sums(source.sums) {
    const bool writes = blockIdx.x == 0 && source.sum != nullptr,
               squares = static_cast<int>(threadIdx.x) >= Row::makers(source) - 32;
    flags = held((source.w != nullptr ? kNorm : 0) | (source.pre_w != nullptr ? kPreNorm : 0) |
                 (source.b != nullptr || has_sums(source.sums) ? kTwo : 0) | (writes ? kWrites : 0) |
                 (squares ? kSquares : 0));
    find_places(row, first);
#pragma unroll
    for (int t = 0; t < kTurns && !kTight; ++t) place[t] = kept(place[t]);
    if (!kTight && source.w != nullptr) take<kTurns>(w, 0, x + kTurns);
  }
  template <class T>
  static __device__ T held(T x) {
    if constexpr (kTight) return x;
    return kept(x);
  }
  // Where the lane's first element is among floats; whether the row has a norm; null, or where the lane's first element
  // is written that an observer reads.
  __device__ int floats_at() const { return kTight ? place_of_eight(found_anew(first)) : floats_first; }
  __device__ bool has_norm() const { return kTight ? found_anew(source.w) != nullptr : is(kNorm); }
  __device__ float* y_at() const {
    if constexpr (!kTight) return y;
    float* to = found_anew(source.y);
    return blockIdx.x == 0 && to != nullptr ? to + first : nullptr;
  }
  __device__ void find_places(const Row& row, int j) {
#pragma unroll
    for (int t = 0; t < kTurns; ++t) place[t] = row.place((j + t * step) / 256);
  }
  // Whether the warp has elements where its lane's is j. Rows of blocks of 256 end with a warp.
  __device__ bool has(int j) const { return (Row::kBlock == 256 ? j : j & ~255) < d; }
  __device__ bool has_own(int j) const { return Row::kBlock == 256 || j < d; }
  // The lane's elements of n turns; from: the lane's first of a row, of which these are `begin` elements further on.
  template <int n>
  __device__ void take(const float* from, int begin, Eight* to) const {
#pragma unroll
    for (int t = 0; t < n; ++t) {
      const int at = begin + t * step;
      if (has(first + at)) to[t] = has_own(first + at) ? fetch_eight<kSpread>(from + at) : Eight{};
    }
  }
  // Known to be false where the kernel is none of a shard's.
  static __device__ bool has_sums(const ShardSums& sums) { return Row::kOfShard && sums.n_shards > 0; }
  // What is added, of the shards by the contract's tree.
  template <int n>
  __device__ void take_added(int begin, Eight* to) const {
    if (!has_sums(sums)) return take<n>(b, begin, to);
    take_sums<n>(b + begin, first + begin, to);
#pragma unroll 1
    for (int q = 2; q < sums.n_shards; q += 2) {
#pragma unroll
      for (int t = 0; t < n; ++t) {
        Eight both[1];
        take_sums<1>(b + begin + t * step + q * sums.width, first + begin + t * step, both);
        add_eight(to[t], both[0]);
      }
    }
  }
  // Those of two neighbouring shards, added; waits until they are there.
  template <int n>
  __device__ void take_sums(const float* from, int j, Eight* to) const {
    Eight second[n];
    uint64_t begin = 0;
#pragma unroll 1
    for (bool there = false; !there;) {
#pragma unroll
      for (int t = 0; t < n; ++t) {
        if (!has(j + t * step)) continue;
        to[t] = has_own(j + t * step) ? fetch_sums<kSpread>(from + t * step) : Eight{};
        second[t] = has_own(j + t * step) ? fetch_sums<kSpread>(from + t * step + sums.width) : Eight{};
      }
      there = true;
#pragma unroll
      for (int t = 0; t < n; ++t) there = (!has(j + t * step) || (are_there(to[t]) & are_there(second[t]))) & there;
      if (there) break;
      if (begin == 0) begin = nanoseconds();
      there = waited_too_long(begin, sums.timed_out);
    }
#pragma unroll
    for (int t = 0; t < n; ++t) add_eight(to[t], second[t]);
  }
  // Asks for the first of a, right after the wait. Where shards' sums are added a comes with them.
  __device__ void ask() {
    if (Row::kOfShard && is(kNorm)) return;
    take<kTurns>(a, 0, x);
    if (!is(kNorm)) take<kTurns>(a, kTurns * step, x + kTurns);
  }
  // a or a + b of n turns, whose a is in `to`, to where products read it as floats first, and for others who read it.
  template <int n>
  __device__ void add_sources(int begin, Eight* to, float* floats, float* sum) const {
    if (is(kTwo)) {
      Eight added[n];
      take_added<n>(begin, added);
#pragma unroll
      for (int t = 0; t < n; ++t) add_eight(to[t], added[t]);
    }
#pragma unroll
    for (int t = 0; t < n; ++t) {
      const int at = begin + t * step;
      if (has(first + at)) store_floats<kSpread>(floats, floats_at() + at, to[t]);
    }
    if (!is(kWrites)) return;
#pragma unroll
    for (int t = 0; t < n; ++t) {
      const int j = first + begin + t * step;
      if (j < d) store_eight<kSpread>(sum + j, to[t]);
    }
  }
};

// A base of Row...: the first kWalkerThreads of a block make it, others fetch for them. turn: elements that they make
// at once.
inline constexpr int kWalkerThreads = 256, kWalkersMax = kWalkerThreads / 32;
struct MadeByWalkers {
  static __device__ int makers(const DecodeSource&) { return kWalkerThreads; }
  static __device__ int turn(const DecodeSource&) { return 8 * kWalkerThreads; }
  static __device__ void meet(const DecodeSource&) {
    asm volatile("bar.sync 1, %0;" : : "n"(kWalkerThreads) : "memory");
  }
};

// x = a + rms_norm(b) in `floats`, the rare case.
template <class Row, int kTurns>
__device__ void add_pre_norm(const DecodeSource& source, const AheadOfRow<Row, kTurns>& ahead, float* floats) {
  constexpr bool kSpread = Row::kSpread;
  __shared__ float factor;
#pragma unroll 1
  for (int j = ahead.first; ahead.has(j); j += ahead.step) {
    Eight added[1] = {};
    ahead.template take_added<1>(j - ahead.first, added);
    store_floats<kSpread>(floats, place_of_eight(j), added[0]);
  }
  Row::meet(source);
  if (threadIdx.x < 32) {
    const float sum = sum_of_squares(floats, ahead.d);
    if (threadIdx.x == 0) factor = inverse_rms_of(sum, ahead.d, source.pre_eps);
  }
  Row::meet(source);
  const float r = factor;
#pragma unroll 1
  for (int j = ahead.first; j < ahead.d; j += ahead.step) {
    Eight v = load_floats<kSpread>(floats, place_of_eight(j)), x = load_eight<kSpread>(source.a + j);
    norm_eight(v, r, load_eight<kSpread>(source.pre_w + j));
    if (blockIdx.x == 0 && source.pre_y != nullptr) store_eight<kSpread>(source.pre_y + j, v);
    add_eight(x, v);
    store_floats<kSpread>(floats, place_of_eight(j), x);
    if (blockIdx.x == 0 && source.sum != nullptr) store_eight<kSpread>(source.sum + j, x);
  }
}

// The elements of a row that has a norm, before it: the first kTurns in registers, all of them in `floats`.
template <class Row, int kTurns>
__device__ void add_up(const DecodeSource& source, AheadOfRow<Row, kTurns>& ahead, float* floats) {
  if (ahead.is(ahead.kPreNorm)) {
    add_pre_norm(source, ahead, floats);
#pragma unroll
    for (int t = 0; t < kTurns; ++t) {
      if (ahead.has(ahead.first + t * ahead.step))
        ahead.x[t] = load_floats<Row::kSpread>(floats, ahead.floats_at() + t * ahead.step);
    }
    return;
  }
  if (Row::kOfShard) ahead.template take<kTurns>(ahead.a, 0, ahead.x);
  ahead.template add_sources<kTurns>(0, ahead.x, floats, source.sum);
#pragma unroll 1
  for (int begin = kTurns * ahead.step; ahead.has(ahead.first + begin); begin += ahead.step) {  // of the widest rows
    Eight x[1];
    ahead.template take<1>(ahead.a, begin, x);
    ahead.template add_sources<1>(begin, x, floats, source.sum);
  }
}

// Of the pieces in `ahead.x`, `begin` elements after the first: their norm by r, if there is one, and what products
// read.
template <int n, class Row, int kTurns>
__device__ void put_pieces(AheadOfRow<Row, kTurns>& ahead, int begin, float r, const Row& x) {
  if (ahead.is(ahead.kNorm)) {
#pragma unroll
    for (int t = 0; t < n; ++t) norm_eight(ahead.x[t], r, ahead.x[kTurns + t]);
    if (float* y = ahead.y_at(); __builtin_expect(y != nullptr, false)) {
#pragma unroll
      for (int t = 0; t < n; ++t) {
        const int at = begin + t * ahead.step;
        if (ahead.first + at < ahead.d) store_eight<Row::kSpread>(y + at, ahead.x[t]);
      }
    }
  }
  if constexpr (Row::kBlock == 256) {
    x.template put<n>(ahead.x, ahead.place);
  } else {
#pragma unroll
    for (int t = 0; t < n; ++t) x.put(ahead.x[t], ahead.place[t], ahead.first + begin + t * ahead.step < ahead.d);
  }
}

// Makes the row of `source` in x; `floats`: row_floats(d) of shared memory, only where there is a norm. All threads
// call it, after the wait for the kernel before and ahead.ask().
template <class Row, int kTurns>
__device__ void make_row(const DecodeSource& source, AheadOfRow<Row, kTurns>& ahead, float* floats, const Row& x) {
  constexpr bool kSpread = Row::kSpread;
  float r = 0.0f;
  if (ahead.is(ahead.kNorm)) {
    add_up(source, ahead, floats);
    if (ahead.kTight) ahead.template take<kTurns>(ahead.w, 0, ahead.x + kTurns);
    Row::meet(source);
    if (ahead.is(ahead.kSquares)) {
      const float sum = sum_of_squares(floats, ahead.d);
      if (threadIdx.x % 32 == 0) floats[0] = inverse_rms_of(sum, ahead.d, ahead.eps);  // whose element is in a register
    }
    Row::meet(source);
    r = floats[0];
  }
#pragma unroll 1
  for (int begin = 0; ahead.has(ahead.first + begin);) {
    if (kTurns > 1 && ahead.has(ahead.first + begin + ahead.step)) {
      put_pieces<kTurns>(ahead, begin, r, x);
    } else {
      put_pieces<1>(ahead, begin, r, x);
    }
    begin += kTurns * ahead.step;
    const int j = ahead.first + begin;
    if (!ahead.has(j)) break;
    ahead.find_places(x, j);
    if (ahead.has_norm()) {
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        if (ahead.has(j + t * ahead.step))
          ahead.x[t] = load_floats<kSpread>(floats, ahead.floats_at() + begin + t * ahead.step);
      }
      ahead.template take<kTurns>(ahead.w, begin, ahead.x + kTurns);
    } else {
#pragma unroll
      for (int t = 0; t < kTurns; ++t) ahead.x[t] = ahead.x[kTurns + t];
      ahead.template take<kTurns>(ahead.a, begin + kTurns * ahead.step, ahead.x + kTurns);
    }
  }
  Row::meet(source);
}

}  // namespace assay::backend::cuda
