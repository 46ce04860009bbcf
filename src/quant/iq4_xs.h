// IQ4_XS: the levels of IQ4_NL with scales of 6 bits around 32 for each 32 of 256 weights.
#pragma once

#include "quant/block.h"
#include "quant/codebooks.h"

namespace assay::quant {

struct BlockIQ4_XS {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 127, kMaxScale = 32, kMaxMin = 0;
  uint16_t d;
  uint16_t scales_high;   // two top bits of scale i at 2i
  uint8_t scales_low[4];  // nibbles, even scales low
  uint8_t nibbles[128];   // 16 bytes for each 32 weights, as in IQ4_NL
};
static_assert(sizeof(BlockIQ4_XS) == 136);

ASSAY_FN BlockScales scales(const BlockIQ4_XS& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN void unpack(const BlockIQ4_XS& b, Integers256& n) noexcept {
  for (int j = 0; j < 256; ++j) {
    const uint8_t byte = b.nibbles[16 * (j / 32) + j % 16];
    n.w[j] = kLevelsIq4[j % 32 < 16 ? byte & 15 : byte >> 4];
  }
  for (int i = 0; i < 8; ++i) {
    const int low = (b.scales_low[i / 2] >> (4 * (i % 2))) & 15;
    const int high = (b.scales_high >> (2 * i)) & 3;
    n.scale[2 * i] = n.scale[2 * i + 1] = static_cast<int16_t>((low | (high << 4)) - 32);
    n.min[2 * i] = n.min[2 * i + 1] = 0;
  }
}

}  // namespace assay::quant
