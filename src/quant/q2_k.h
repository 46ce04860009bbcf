// Q2_K: 256 weights of 2 bits in 16 sub-blocks; each byte of sub_scales is a scale (low nibble) and a minimum (high
// nibble). Byte i of a half (32 bytes, 128 weights) holds elements i, i + 32, i + 64, i + 96 of that half, lowest bits
// first.
#pragma once

#include "quant/block.h"

namespace assay::quant {

struct BlockQ2_K {
  static constexpr bool kHasMin = true;
  static constexpr int kMaxWeight = 3, kMaxScale = 15, kMaxMin = 15;
  uint8_t sub_scales[16];
  uint8_t q[64];
  uint16_t d, d_min;
};
static_assert(sizeof(BlockQ2_K) == 84);

ASSAY_FN BlockScales scales(const BlockQ2_K& b) noexcept {
  return {num::half_to_float(b.d), -num::half_to_float(b.d_min)};
}

ASSAY_FN void unpack(const BlockQ2_K& b, Integers256& n) noexcept {
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128, shift = 2 * (j / 32 % 4);
    n.w[j] = static_cast<int8_t>((b.q[32 * half + j % 32] >> shift) & 3);
  }
  for (int group = 0; group < 16; ++group) {
    n.scale[group] = static_cast<int16_t>(b.sub_scales[group] & 15);
    n.min[group] = static_cast<int16_t>(b.sub_scales[group] >> 4);
  }
}

}  // namespace assay::quant
