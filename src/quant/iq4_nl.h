// IQ4_NL: 32 indices of 4 bits into a table of 16 uneven levels, one half-precision scale.
#pragma once

#include "quant/block.h"
#include "quant/codebooks.h"

namespace assay::quant {

struct BlockIQ4_NL {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 127;
  uint16_t d;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

ASSAY_FN BlockScales scales(const BlockIQ4_NL& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN void unpack(const BlockIQ4_NL& b, Integers32& n) noexcept {
  for (int j = 0; j < 16; ++j) {
    n.w[j] = kLevelsIq4[b.nibbles[j] & 15];
    n.w[j + 16] = kLevelsIq4[b.nibbles[j] >> 4];
  }
}

}  // namespace assay::quant
