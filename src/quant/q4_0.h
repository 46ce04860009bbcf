// Q4_0: 32 weights of 4 bits around 8, one half-precision scale. Element j is the low nibble of byte j, element j + 16
// the high one.
#pragma once

#include "quant/encode.h"

namespace assay::quant {

struct BlockQ4_0 {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 8;
  uint16_t d;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

ASSAY_FN BlockScales scales(const BlockQ4_0& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN void unpack(const BlockQ4_0& b, Integers32& n) noexcept {
  for (int j = 0; j < 16; ++j) {
    n.w[j] = static_cast<int8_t>((b.nibbles[j] & 15) - 8);
    n.w[j + 16] = static_cast<int8_t>((b.nibbles[j] >> 4) - 8);
  }
}

// The element farthest from zero becomes -8; d = it / -8.
ASSAY_FN BlockQ4_0 encode_q4_0(const float* x) noexcept {
  BlockQ4_0 b;
  const float d = farthest_32(x) / -8;
  const float inverse = inverse_or_zero(d);
  b.d = num::float_to_half(d);
  for (int j = 0; j < 16; ++j) {
    const int low = truncate_clamped(x[j] * inverse + 8.5f, 15),
              high = truncate_clamped(x[j + 16] * inverse + 8.5f, 15);
    b.nibbles[j] = static_cast<uint8_t>(low | (high << 4));
  }
  return b;
}

}  // namespace assay::quant
