// Q3_K: 256 weights of 3 bits around 4 in 16 sub-blocks with scales of 6 bits around 32. The two low bits lie as in
// Q2_K; bit j / 32 of high_bits[j % 32] is the third bit of element j.
#pragma once

#include "quant/block.h"

namespace assay::quant {

struct BlockQ3_K {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 4, kMaxScale = 32, kMaxMin = 0;
  uint8_t high_bits[32];
  uint8_t q[64];
  uint8_t sub_scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

ASSAY_FN BlockScales scales(const BlockQ3_K& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN void unpack(const BlockQ3_K& b, Integers256& n) noexcept {
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128, shift = 2 * (j / 32 % 4);
    const int low = (b.q[32 * half + j % 32] >> shift) & 3;
    const int high = (b.high_bits[j % 32] >> (j / 32)) & 1;
    n.w[j] = static_cast<int8_t>((low | (high << 2)) - 4);
  }
  // Low nibbles of the 16 scales: bytes 0..7, then their upper halves. Top bits: byte 8 + i % 4, pair i / 4.
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? b.sub_scales[i] & 15 : b.sub_scales[i - 8] >> 4;
    const int high = (b.sub_scales[8 + i % 4] >> (2 * (i / 4))) & 3;
    n.scale[i] = static_cast<int16_t>((low | (high << 4)) - 32);
    n.min[i] = 0;
  }
}

}  // namespace assay::quant
