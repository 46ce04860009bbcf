// TQ1_0: 256 weights from {-1, 0, 1}, five in a byte as a fraction of 243 in base 3, the first digit the most
// significant; the last 16 weights lie four in a byte.
#pragma once

#include "quant/block.h"

namespace assay::quant {

struct BlockTQ1_0 {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 1, kMaxScale = 1, kMaxMin = 0;
  uint8_t fives[48];  // 32 bytes for elements 0..159 (element 32k + i: digit k of byte i), 16 for 160..239 (digit k of
                      // byte 32 + i)
  uint8_t fours[4];   // elements 240 + 4k + i: digit k of byte i
  uint16_t d;
};
static_assert(sizeof(BlockTQ1_0) == 54);

ASSAY_FN BlockScales scales(const BlockTQ1_0& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN int8_t ternary_digit(uint8_t byte, int k) noexcept {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const uint8_t shifted = static_cast<uint8_t>(byte * kPowers[k]);  // the digits before fall off
  return static_cast<int8_t>(((shifted * 3) >> 8) - 1);
}

ASSAY_FN void unpack(const BlockTQ1_0& b, Integers256& n) noexcept {
  for (int i = 0; i < 32; ++i) {
    for (int k = 0; k < 5; ++k) n.w[32 * k + i] = ternary_digit(b.fives[i], k);
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 5; ++k) n.w[160 + 16 * k + i] = ternary_digit(b.fives[32 + i], k);
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 4; ++k) n.w[240 + 4 * k + i] = ternary_digit(b.fours[i], k);
  }
  for (int group = 0; group < 16; ++group) {
    n.scale[group] = 1;
    n.min[group] = 0;
  }
}

}  // namespace assay::quant
