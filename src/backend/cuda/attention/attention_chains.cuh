// What a warp of attention_hopper.cu does with a stage of the ring: keys times queries into a segment's scores,
// probabilities times values into its outputs. A lane holds 8 queries x 16 keys a group of scores, 8 queries x 4 or 8
// columns of outputs; nothing here meets another warp.
#pragma once

#include "backend/cuda/attention/attention_stages.cuh"
#include "num/math.h"

namespace assay::backend::cuda {

inline constexpr uint32_t kLowestScore = 0xFF800000u;  // -infinity
inline constexpr int kScoreStep = 16 * 4;              // floats between two of a lane's keys

// Of 8 queries a lane's columns.
template <class C>
using Outputs = float[8][4 * C::kColumns];

// Outputs so far lie where a warp's probabilities will while the scores need all registers.
__device__ inline float* output_place(float* p, int n) { return p + (n * 32 + static_cast<int>(threadIdx.x) % 32) * 4; }
template <class C>
__device__ void put_by(const Outputs<C>& out, float* p) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) write_4(output_place(p, i * C::kColumns + c), out[i] + 4 * c);
  }
}
template <class C>
__device__ void bring_back(float* p, Outputs<C>& out) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) read_4(output_place(p, i * C::kColumns + c), out[i] + 4 * c);
  }
  __syncwarp();
}

__device__ inline float larger_or_nan(float a, float b) {
  float x;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}

// Elements of a stage, into the chains; what comes next is read ahead.
template <class C, int kN>
__device__ void add_scores(const float* keys, const float* q, float (&score)[4 * kN][8]) {
  constexpr int kLoop = 2;
  float x[2][8], key[2][4];
  read_4(q, x[0]), read_4(q + 4, x[0] + 4), read_4(keys, key[0]);
#pragma unroll 1
  for (int e = 0; e < C::kElements; e += kLoop) {
    const int after = e + kLoop < C::kElements ? kLoop : kLoop - 1;  // the last again: it is there
#pragma unroll
    for (int step = 0; step < kLoop * kN; ++step) {
      const int now = step / kN, group = step % kN, next = now + 1 < kLoop ? now + 1 : after;
      float(&x_next)[8] = x[(now + 1) % 2], (&key_next)[4] = key[(step + 1) % 2];
      if (group == 0) read_4(q + next * kWarpQueries, x_next), read_4(q + next * kWarpQueries + 4, x_next + 4);
      if (group + 1 < kN) {
        read_4(keys + now * kSegment + (group + 1) * kGroupKeys, key_next);
      } else {
        read_4(keys + next * kSegment, key_next);
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const int i = c % 2 == 0 ? 7 - n : n;  // so that every step has one of its factors from the step before
          score[4 * group + c][i] = num::fma(x[now % 2][i ^ 1], key[step % 2][c], score[4 * group + c][i]);
        }
      }
    }
    keys += kLoop * kSegment, q += kLoop * kWarpQueries;
  }
}

// Where some of the warp's queries do not see all of n rows of keys, of which the lane's first is `first` and has its
// scores at p.
__device__ inline void mask(const Seen& seen_by, int first, int n, float* p, float (&m)[8]) {
#pragma unroll 1
  for (int k = 0; k < n; ++k, p += kScoreStep) {
    const uint32_t bits = seen_by.of(first + 16 * k);
    float x[8];
    read_queries(p, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((bits >> i & 1u) == 0) x[i] = __uint_as_float(kLowestScore);
      m[i] = larger_or_nan(m[i], x[i]);
    }
    write_queries(x, p);
  }
}

// What a key adds: its probabilities, its value's columns.
template <class C>
struct StageKey {
  float p[8], v[4 * C::kColumns];
  __device__ void read(const float* probabilities, const float* value) {
    read_queries(probabilities, p);
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) read_4(value + c * kGroupKeys, v + 4 * c);
  }
  __device__ void add_to(Outputs<C>& sum) const {
    constexpr int kN = 4 * C::kColumns;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int c = i % 2 == 0 ? kN - 1 - n : n;  // as above
        sum[i][c] = num::fma(p[i], v[c], sum[i][c]);
      }
    }
  }
};

// A key is read while the one before is added.
template <class C>
__device__ void add_all(const float* p, const float* values, int n, Outputs<C>& sum) {
  constexpr int kUnrolled = 1024 / C::kHeadDim;
  if (n >= kUnrolled) {
    StageKey<C> key[2];
    key[0].read(p, values);
#pragma unroll 1
    do {
      const int later = n >= 2 * kUnrolled ? 0 : kUnrolled;  // then this round's first again: it is there
#pragma unroll
      for (int k = 0; k < kUnrolled; ++k) {
        const int next = k + 1 < kUnrolled ? k + 1 : k + 1 - later;
        key[(k + 1) % 2].read(p + next * 4, values + next * C::kHeadDim);
        key[k % 2].add_to(sum);
      }
      p += kUnrolled * 4, values += kUnrolled * C::kHeadDim, n -= kUnrolled;
    } while (n >= kUnrolled);
  }
#pragma unroll 1
  for (; n > 0; --n, p += 4, values += C::kHeadDim) {
    StageKey<C> now;
    now.read(p, values);
    now.add_to(sum);
  }
}
// Keys begin .. end of a stage that begins at `first`. A token's chain has its own keys only.
template <class C>
__device__ void add_seen(const Seen& seen_by, int begin, int end, int first, const float* p, const float* values,
                         Outputs<C>& sum) {
#pragma unroll 1
  for (int position = begin; position < end; ++position) {
    StageKey<C> key;
    key.read(p + (position - first) * 4, values + (position - first) * C::kHeadDim);
    const uint32_t bits = seen_by.of(position);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((bits >> i & 1u) == 0) continue;
#pragma unroll
      for (int c = 0; c < 4 * C::kColumns; ++c) sum[i][c] = num::fma(key.p[i], key.v[c], sum[i][c]);
    }
  }
}

}  // namespace assay::backend::cuda
