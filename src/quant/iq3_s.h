// IQ3_S: rows of 4 from a grid of 512, a sign bit for each weight, a nibble s for each 32: value d * (2s + 1) * level.
#pragma once

#include "quant/block.h"
#include "quant/iq_signs.h"

namespace assay::quant {

struct BlockIQ3_S {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 15, kMaxScale = 31, kMaxMin = 0;
  uint16_t d;
  uint8_t q[64];         // low 8 bits of the row numbers
  uint8_t high_bits[8];  // their ninth bits
  uint8_t signs[32];
  uint8_t sub_scales[4];
};
static_assert(sizeof(BlockIQ3_S) == 110);

ASSAY_FN BlockScales scales(const BlockIQ3_S& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN void unpack(const BlockIQ3_S& b, Integers256& n) noexcept {
  for (int pair = 0; pair < 32; ++pair) {
    const int high = b.high_bits[pair / 4] >> (2 * (pair % 4));
    const uint64_t rows = kGridIq3S[b.q[2 * pair] | (high & 1) << 8] |
                          static_cast<uint64_t>(kGridIq3S[b.q[2 * pair + 1] | (high & 2) << 7]) << 32;
    put_signed(rows, b.signs[pair], n.w + 8 * pair);
  }
  for (int i = 0; i < 8; ++i) {
    const int s = (b.sub_scales[i / 2] >> (4 * (i % 2))) & 15;
    n.scale[2 * i] = n.scale[2 * i + 1] = static_cast<int16_t>(2 * s + 1);
    n.min[2 * i] = n.min[2 * i + 1] = 0;
  }
}

}  // namespace assay::quant
