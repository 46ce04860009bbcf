// Q5_0: 32 weights of 5 bits around 16, one half-precision scale. Nibbles as in Q4_0; bit j of the mask is the fifth
// bit of element j.
#pragma once

#include "quant/encode.h"

namespace assay::quant {

struct BlockQ5_0 {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 16;
  uint16_t d;
  uint8_t high_bits[4];
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

ASSAY_FN BlockScales scales(const BlockQ5_0& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN void unpack(const BlockQ5_0& b, Integers32& n) noexcept {
  for (int j = 0; j < 32; ++j) {
    const int low = j < 16 ? b.nibbles[j] & 15 : b.nibbles[j - 16] >> 4;
    const int high = (b.high_bits[j / 8] >> (j % 8)) & 1;
    n.w[j] = static_cast<int8_t>((low | (high << 4)) - 16);
  }
}

// The element farthest from zero becomes -16; d = it / -16.
ASSAY_FN BlockQ5_0 encode_q5_0(const float* x) noexcept {
  BlockQ5_0 b;
  const float d = farthest_32(x) / -16;
  const float inverse = inverse_or_zero(d);
  b.d = num::float_to_half(d);
  uint8_t levels[32];
  for (int j = 0; j < 32; ++j) levels[j] = static_cast<uint8_t>(truncate_clamped(x[j] * inverse + 16.5f, 31));
  pack_5_bits(levels, b.nibbles, b.high_bits);
  return b;
}

}  // namespace assay::quant
