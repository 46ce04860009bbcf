// The smallest steps of the contract's sections 1 and 2, one source for the references and the device's kernels.
#pragma once

#include <bit>
#include <cstdint>

#include "num/device.h"
#include "num/lanes.h"
#include "num/round.h"
#include "quant/format.h"

namespace assay::quant {

// A block whose largest magnitude has these bits: what becomes of it. The quotient by 127 comes without a division:
// from 2^-100 on two steps with the nearest float to 1 / 127 round as a division would, for each of the 2^23 fractions.
struct BlockScale {
  float d = 0;  // scale of the block
  float r = 0;  // factor of the elements; 0: all integers are 0
};
ASSAY_FN BlockScale block_scale(uint32_t amax_bits) noexcept {
  if (amax_bits >= 0x7F800000u) return {std::bit_cast<float>(0x7FC00000u), 0.0f};  // a NaN or infinity stays visible
  const float amax = std::bit_cast<float>(amax_bits);
  if (amax < 0x1p-100f) return {0.0f, 0.0f};
  constexpr float kInverse = 1.0f / 127.0f;
  const float d = amax * kInverse;
  return {num::fma(num::fma(-d, 127.0f, amax), kInverse, d), 127.0f / amax};
}

ASSAY_FN float clamped(float x, float limit) noexcept { return x > limit ? limit : x < -limit ? -limit : x; }
// First plane and refinement of x in a block with factor r > 0; both are whole numbers.
ASSAY_FN float first_plane(float x, float r) noexcept { return clamped(num::rint_small(x * r), 127.0f); }
ASSAY_FN float second_plane(float x, float r, float first) noexcept {
  return clamped(num::rint_small(128.0f * num::fma(x, r, -first)), 64.0f);
}

// Two planes as one number: high + low / 128, rounded once.
ASSAY_FN float join_planes(int32_t high, int32_t low) noexcept {
  return num::fma(0x1p-7f, static_cast<float>(low), static_cast<float>(high));
}

// The float term of a block from its joined integers.
ASSAY_FN float block_term(bool has_min, BlockScales s, float f, float g) noexcept {
  return has_min ? num::fma(s.d, f, s.m * g) : s.d * f;
}

// Which chunk block i of n lies in, for n <= 4096: the floor of (8 i + 7) / n, by 1 / n.
ASSAY_FN int chunk_of(int i, float inverse_of_n) noexcept {
  return static_cast<int>((static_cast<float>(8 * i) + 7.5f) * inverse_of_n);
}

// The tree over the 8 chunks.
ASSAY_FN float chunk_tree(const float* c) noexcept {
  return ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
}

}  // namespace assay::quant
