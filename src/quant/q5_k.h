// Q5_K: Q4_K with a fifth bit: bit j / 32 of high_bits[j % 32] belongs to element j.
#pragma once

#include "quant/block.h"
#include "quant/k_scales.h"

namespace assay::quant {

struct BlockQ5_K {
  static constexpr bool kHasMin = true;
  static constexpr int kMaxWeight = 31, kMaxScale = 63, kMaxMin = 63;
  uint16_t d, d_min;
  uint8_t sub_scales[12];
  uint8_t high_bits[32];
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

ASSAY_FN BlockScales scales(const BlockQ5_K& b) noexcept {
  return {num::half_to_float(b.d), -num::half_to_float(b.d_min)};
}

ASSAY_FN void unpack(const BlockQ5_K& b, Integers256& n) noexcept {
  for (int j = 0; j < 256; ++j) {
    const uint8_t byte = b.nibbles[32 * (j / 64) + j % 32];
    const int low = j / 32 % 2 == 0 ? byte & 15 : byte >> 4;
    const int high = (b.high_bits[j % 32] >> (j / 32)) & 1;
    n.w[j] = static_cast<int8_t>(low | (high << 4));
  }
  unpack_k_scales(b.sub_scales, n);
}

}  // namespace assay::quant
