// Q5_1: 32 weights of 5 bits, half-precision scale and minimum. Nibbles as in Q4_1; bit j of the mask is the fifth bit
// of element j.
#pragma once

#include "quant/encode.h"

namespace assay::quant {

struct BlockQ5_1 {
  static constexpr bool kHasMin = true;
  static constexpr int kMaxWeight = 31;
  uint16_t d, m;
  uint8_t high_bits[4];
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

ASSAY_FN BlockScales scales(const BlockQ5_1& b) noexcept { return {num::half_to_float(b.d), num::half_to_float(b.m)}; }

ASSAY_FN void unpack(const BlockQ5_1& b, Integers32& n) noexcept {
  for (int j = 0; j < 32; ++j) {
    const int low = j < 16 ? b.nibbles[j] & 15 : b.nibbles[j - 16] >> 4;
    const int high = (b.high_bits[j / 8] >> (j % 8)) & 1;
    n.w[j] = static_cast<int8_t>(low | (high << 4));
  }
}

ASSAY_FN BlockQ5_1 encode_q5_1(const float* x) noexcept {
  BlockQ5_1 b;
  const Range range = range_32(x);
  const float d = (range.max - range.min) / 31;
  const float inverse = inverse_or_zero(d);
  b.d = num::float_to_half(d);
  b.m = num::float_to_half(range.min);
  uint8_t levels[32];
  for (int j = 0; j < 32; ++j)
    levels[j] = static_cast<uint8_t>(truncate_clamped((x[j] - range.min) * inverse + 0.5f, 31));
  pack_5_bits(levels, b.nibbles, b.high_bits);
  return b;
}

}  // namespace assay::quant
