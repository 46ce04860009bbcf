// The loops of the kernels that turn activations into integers over rows and blocks, shared by the instruction sets.
// Included by kernel files only; everything here is local to the file that includes it.
#pragma once

#include "backend/cpu/linear/quantise.h"

namespace assay::backend::cpu {
namespace {

// Sums of the first and the last 16 of 32 bytes.
struct Halves {
  int first, last;
};
inline void put_sums(Halves sums, bool by_16, int16_t* out) noexcept {
  if (by_16) {
    out[0] = static_cast<int16_t>(sums.first);
    out[1] = static_cast<int16_t>(sums.last);
  } else {
    out[0] = static_cast<int16_t>(sums.first + sums.last);
  }
}

// What one call writes: 32 elements of the planes and their sums; l null with one plane.
struct Place {
  int8_t *q, *l;
  int16_t *q_sums, *l_sums;
};

inline void zero_32(bool by_16, const Place& out) noexcept {
  __builtin_memset(out.q, 0, 32);
  put_sums({0, 0}, by_16, out.q_sums);
  if (out.l == nullptr) return;
  __builtin_memset(out.l, 0, 32);
  put_sums({0, 0}, by_16, out.l_sums);
}

// kMagnitudeBits(x, n): the bits of the largest magnitude of n elements, at least those of infinity if one is NaN.
// kQuantise32(x, r, by_16, place): 32 elements of a block that is neither empty nor poisoned.
template <auto kMagnitudeBits, auto kQuantise32>
void quantise_rows_with(tensor::ConstMat x, const quant::Activations& out, int64_t row_begin,
                        int64_t row_end) noexcept {
  const bool by_16 = out.kind == quant::Activation::a256;
  const int64_t block = by_16 ? 256 : 32, sums_of_32 = by_16 ? 2 : 1, n_blocks = out.k / block;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* from = x.data + row * x.stride;
    for (int64_t b = 0; b < n_blocks; ++b, from += block) {
      const uint32_t bits = kMagnitudeBits(from, block);
      float amax;
      __builtin_memcpy(&amax, &bits, 4);
      const bool poisoned = bits >= 0x7F800000u, empty = poisoned || amax < 0x1p-100f;
      out.d[row * n_blocks + b] = poisoned ? __builtin_nanf("") : empty ? 0.0f : amax / 127.0f;
      const float r = empty ? 0.0f : 127.0f / amax;
      for (int64_t j = 0; j < block; j += 32) {
        const int64_t at = row * out.k + b * block + j, sum_at = at / 32 * sums_of_32;
        const bool two = out.planes == 2;
        const Place place = {out.q + at, two ? out.l + at : nullptr, out.q_sums + sum_at,
                             two ? out.l_sums + sum_at : nullptr};
        if (empty) {
          zero_32(by_16, place);
        } else {
          kQuantise32(from + j, r, by_16, place);
        }
      }
    }
  }
}

}  // namespace
}  // namespace assay::backend::cpu
