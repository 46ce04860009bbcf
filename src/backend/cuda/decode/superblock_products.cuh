// Products of a superblock on Hopper's tensor cores, for superblock_multiplier.cuh: what a thread holds of a tile's
// integers.
//
//   sum        [columns / 2] integers: high digits times columns, shifted, and the low digits onto them
//   of_minima  [halves][32]: minima times sums of activations, products of half-precision integers
#pragma once

#include <type_traits>

#include "backend/cuda/decode/superblock_filler.cuh"

namespace assay::backend::cuda::superblocks {

template <class Kind>
struct SuperblockProducts {
  using L = Layout<Kind>;
  using F = typename Kind::F;
  static constexpr int kPlanes = Kind::kPlanes, kColumns = Kind::kColumns, kHalves = Kind::kHalves;
  // All columns are multiplied at once, the high digits by one group at a time, so that terms of one group fall into
  // products of the other. Fewer instructions than by halves; which is faster was measured.
  static constexpr bool kInTurns = kPlanes == 1 && kHalves == 2 && F::kHasMin && !F::kMixed;
  int32_t sum[kColumns / 2];
  float of_minima[kHalves][32];  // of 64 columns each

  __device__ static uint64_t columns_of(uint64_t stage, int weight, int half) {
    return later_columns(stage, static_cast<uint32_t>(weight / 128 * L::kPanelBytes + half * 64 * 128 + weight % 128));
  }
  template <class Format, int kHalf, bool kAccumulate>
  __device__ void multiply_high(const uint32_t (&a)[4], uint64_t stage, int weight) {
    const uint64_t b = columns_of(stage, weight, kHalf);
    if constexpr (kInTurns) {
      multiply_bytes_unsigned<kAccumulate>(sum, a, b);
    } else if constexpr (Format::kSigned) {
      multiply_half_signed<kAccumulate, 32 * kHalf>(sum, a, b);
    } else {
      multiply_half_unsigned<kAccumulate, 32 * kHalf>(sum, a, b);
    }
  }
  // Step i of four.
  template <class Format, int kHalf>
  __device__ void multiply_high_digits(const Fragments (&a)[8], int i, uint64_t from) {
    if (i == 0) {
      multiply_high<Format, kHalf, false>(a[0].high, from, Format::first(0));
    } else {
      multiply_high<Format, kHalf, true>(a[2 * i].high, from, Format::first(i));
    }
    multiply_high<Format, kHalf, true>(a[2 * i + 1].high, from, Format::second(i));
  }
  template <int kHalf>
  __device__ void multiply_low(const uint32_t (&a)[4], uint64_t stage, int weight) {
    const uint64_t b = columns_of(stage, weight, kHalf);
    if constexpr (kInTurns) {
      multiply_bytes_unsigned<true>(sum, a, b);
    } else {
      multiply_half_unsigned<true, 32 * kHalf>(sum, a, b);
    }
  }
  template <class Format>
  __device__ void multiply_minima(const Format& w, uint32_t sums, int half) {
    forget(of_minima[half]);
    multiply_halves_64(of_minima[half], w.minima,
                       plain_columns(sums + static_cast<uint32_t>(half * 64 * 16), kColumns * 16));
  }
  // So that nothing of the superblock before is kept in registers.
  template <class T, int n>
  __device__ static void forget(T (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        asm volatile("" : "=f"(x[i]));
      } else {
        asm volatile("" : "=r"(x[i]));
      }
    }
  }
  template <int kShift, int kHalf>
  __device__ void shift() {
#pragma unroll
    for (int i = 32 * kHalf; i < (kInTurns ? 64 : 32 * kHalf + 32); ++i)
      sum[i] = static_cast<int32_t>(static_cast<uint32_t>(sum[i]) << kShift);
  }

  // The low digits of half kHalf, in turns of all columns, onto the high ones, and before the last half's the minima of
  // the first.
  template <class Format, int kHalf>
  __device__ void multiply_low_digits(const Format& w, const Fragments (&a)[8], uint64_t from, uint32_t sums) {
    constexpr bool kMinima = Format::kHasMin && (kInTurns || kHalf == kHalves - 1);
    shift<Format::kShift, kHalf>();
    begin_products();
    if constexpr (kMinima) {
      multiply_minima(w, sums, 0);
      end_products();
      begin_products();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply_low<kHalf>(a[2 * i].low, from, Format::first(i));
      multiply_low<kHalf>(a[2 * i + 1].low, from, Format::second(i));
    }
    if constexpr (kMinima && kPlanes == 2 && kHalves == 2) multiply_minima(w, sums, 1);
    end_products();
  }
};

}  // namespace assay::backend::cuda::superblocks
