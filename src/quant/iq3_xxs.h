// IQ3_XXS: rows of 4 from a grid of 256. Each 32 weights have a word of four times 7 sign bits and a scale s of 4 bits:
// value (d / 4) * (2s + 1) * level.
#pragma once

#include "quant/block.h"
#include "quant/iq_signs.h"

namespace assay::quant {

struct BlockIQ3_XXS {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 62, kMaxScale = 31, kMaxMin = 0;
  uint16_t d;
  uint8_t q[64];
  uint8_t signs_and_scales[32];
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

ASSAY_FN BlockScales scales(const BlockIQ3_XXS& b) noexcept { return {num::half_to_float(b.d) * 0.25f, 0}; }

ASSAY_FN SignedRows signed_rows(const BlockIQ3_XXS& b, int run) noexcept {
  SignedRows r;
  uint32_t signs_and_scale;
  std::memcpy(&signs_and_scale, b.signs_and_scales + 4 * run, 4);
  r.signs = even_signs_of_four(signs_and_scale);
  for (int part = 0; part < 4; ++part) {
    const uint8_t* q = b.q + 8 * run + 2 * part;
    r.rows[part] = kGridIq3Xxs[q[0]] | static_cast<uint64_t>(kGridIq3Xxs[q[1]]) << 32;
  }
  return r;
}

ASSAY_FN void integer_scales(const BlockIQ3_XXS& b, Integers256& n) noexcept {
  for (int run = 0; run < 8; ++run) {
    uint32_t signs_and_scale;
    std::memcpy(&signs_and_scale, b.signs_and_scales + 4 * run, 4);
    n.scale[2 * run] = n.scale[2 * run + 1] = static_cast<int16_t>(2 * (signs_and_scale >> 28) + 1);
    n.min[2 * run] = n.min[2 * run + 1] = 0;
  }
}

ASSAY_FN void unpack(const BlockIQ3_XXS& b, Integers256& n) noexcept {
  put_runs(b, n);
  integer_scales(b, n);
}

}  // namespace assay::quant
