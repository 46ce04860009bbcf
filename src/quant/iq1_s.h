// IQ1_S: rows of 8 from {-1, 0, 1} in a grid of 2048, shifted by an eighth up or down. Each 32 weights have a word:
// three top bits of the four row numbers, a scale s of 3 bits, the sign of the shift. Value (d / 8) * (2s + 1) * (8 *
// level +- 1): whole numbers throughout.
#pragma once

#include <cstring>

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
    const uint64_t shift = (word & 0x8000) != 0 ? 0xFFFFFFFFFFFFFFFFu : 0x0101010101010101u;
    for (int part = 0; part < 4; ++part) {
      const uint64_t row = kGridIq1S[b.q[4 * i + part] | (((word >> (3 * part)) & 7) << 8)];
      const uint64_t levels = (row & 0x1F1F1F1F1F1F1F1Fu) << 3;  // 8 of them as bytes, times 8
      const uint64_t low7 = 0x7F7F7F7F7F7F7F7Fu;
      const uint64_t sums = ((levels & low7) + (shift & low7)) ^ ((levels ^ shift) & ~low7);
      std::memcpy(n.w + 32 * i + 8 * part, &sums, 8);
    }
    n.scale[2 * i] = n.scale[2 * i + 1] = static_cast<int16_t>(2 * ((word >> 12) & 7) + 1);
    n.min[2 * i] = n.min[2 * i + 1] = 0;
  }
}

}  // namespace assay::quant
