// Q6_K: 256 weights of 6 bits around 32 in 16 sub-blocks with signed scales of 8 bits. In a half (128 weights): element
// i has its low nibble in byte i % 64 of 64 (low half of the byte below 64, high above) and its top two bits in pair i
// / 32 of byte i % 32 of 32.
#pragma once

#include "quant/block.h"

namespace assay::quant {

struct BlockQ6_K {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 32, kMaxScale = 128, kMaxMin = 0;
  uint8_t nibbles[128];
  uint8_t high_bits[64];
  int8_t sub_scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

ASSAY_FN BlockScales scales(const BlockQ6_K& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN void unpack(const BlockQ6_K& b, Integers256& n) noexcept {
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128, i = j % 128;
    const uint8_t byte = b.nibbles[64 * half + i % 64];
    const int low = i < 64 ? byte & 15 : byte >> 4;
    const int high = (b.high_bits[32 * half + i % 32] >> (2 * (i / 32))) & 3;
    n.w[j] = static_cast<int8_t>((low | (high << 4)) - 32);
  }
  for (int group = 0; group < 16; ++group) {
    n.scale[group] = b.sub_scales[group];
    n.min[group] = 0;
  }
}

}  // namespace assay::quant
