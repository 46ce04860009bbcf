// Q4_1: 32 weights of 4 bits, half-precision scale and minimum. Element j is the low nibble of byte j, element j + 16
// the high one.
#pragma once

#include "quant/encode.h"

namespace assay::quant {

struct BlockQ4_1 {
  static constexpr bool kHasMin = true;
  static constexpr int kMaxWeight = 15;
  uint16_t d, m;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

ASSAY_FN BlockScales scales(const BlockQ4_1& b) noexcept { return {num::half_to_float(b.d), num::half_to_float(b.m)}; }

ASSAY_FN void unpack(const BlockQ4_1& b, Integers32& n) noexcept {
  for (int j = 0; j < 16; ++j) {
    n.w[j] = static_cast<int8_t>(b.nibbles[j] & 15);
    n.w[j + 16] = static_cast<int8_t>(b.nibbles[j] >> 4);
  }
}

ASSAY_FN BlockQ4_1 encode_q4_1(const float* x) noexcept {
  BlockQ4_1 b;
  const Range range = range_32(x);
  const float d = (range.max - range.min) / 15;
  const float inverse = inverse_or_zero(d);
  b.d = num::float_to_half(d);
  b.m = num::float_to_half(range.min);
  for (int j = 0; j < 16; ++j) {
    const int low = truncate_clamped((x[j] - range.min) * inverse + 0.5f, 15);
    const int high = truncate_clamped((x[j + 16] - range.min) * inverse + 0.5f, 15);
    b.nibbles[j] = static_cast<uint8_t>(low | (high << 4));
  }
  return b;
}

}  // namespace assay::quant
