// IQ1_S: rows of 8 from {-1, 0, 1} in a grid of 2048, shifted by an eighth up or down. Each 32 weights have a word:
// three top bits of the four row numbers, a scale s of 3 bits, the sign of the shift. Value (d / 8) * (2s + 1) * (8 *
// level +- 1): whole numbers throughout.
#pragma once

#include "quant/block.h"
#include "quant/codebooks.h"

namespace assay::quant {

struct BlockIQ1_S {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 9, kMaxScale = 15, kMaxMin = 0;
  uint16_t d;
  uint8_t q[32];
  uint16_t words[8];
};
static_assert(sizeof(BlockIQ1_S) == 50);

ASSAY_FN BlockScales scales(const BlockIQ1_S& b) noexcept { return {num::half_to_float(b.d) * 0.125f, 0}; }

ASSAY_FN void unpack(const BlockIQ1_S& b, Integers256& n) noexcept {
  for (int i = 0; i < 8; ++i) {
    const int word = b.words[i];
    const int shift = (word & 0x8000) != 0 ? -1 : 1;
    for (int part = 0; part < 4; ++part) {
      const uint64_t row = kGridIq1S[b.q[4 * i + part] | (((word >> (3 * part)) & 7) << 8)];
      for (int j = 0; j < 8; ++j) {
        const int level = static_cast<int8_t>((row >> (8 * j)) & 255);
        n.w[32 * i + 8 * part + j] = static_cast<int8_t>(8 * level + shift);
      }
    }
    n.scale[2 * i] = n.scale[2 * i + 1] = static_cast<int16_t>(2 * ((word >> 12) & 7) + 1);
    n.min[2 * i] = n.min[2 * i + 1] = 0;
  }
}

}  // namespace assay::quant
