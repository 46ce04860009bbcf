// Q4_K: 256 weights of 4 bits in 8 sub-blocks with scales and minima of 6 bits. Byte i of a quarter (32 bytes, 64
// weights) holds elements i (low nibble) and i + 32 of that quarter.
#pragma once

#include "quant/block.h"
#include "quant/k_scales.h"

namespace assay::quant {

struct BlockQ4_K {
  static constexpr bool kHasMin = true;
  static constexpr int kMaxWeight = 15, kMaxScale = 63, kMaxMin = 63;
  uint16_t d, d_min;
  uint8_t sub_scales[12];
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

ASSAY_FN BlockScales scales(const BlockQ4_K& b) noexcept {
  return {num::half_to_float(b.d), -num::half_to_float(b.d_min)};
}

ASSAY_FN void unpack(const BlockQ4_K& b, Integers256& n) noexcept {
  for (int j = 0; j < 256; ++j) {
    const uint8_t byte = b.nibbles[32 * (j / 64) + j % 32];
    n.w[j] = static_cast<int8_t>(j / 32 % 2 == 0 ? byte & 15 : byte >> 4);
  }
  unpack_k_scales(b.sub_scales, n);
}

}  // namespace assay::quant
