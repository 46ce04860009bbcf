// IQ2_XXS: rows of 8 from a grid of 256. 32 weights take 8 bytes: four row numbers, then four times 7 sign bits and a
// scale s of 4 bits, value (d / 8) * (2s + 1) * level.
#pragma once

#include "quant/block.h"
#include "quant/iq_signs.h"

namespace assay::quant {

struct BlockIQ2_XXS {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 43, kMaxScale = 31, kMaxMin = 0;
  uint16_t d;
  uint8_t q[64];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

ASSAY_FN BlockScales scales(const BlockIQ2_XXS& b) noexcept { return {num::half_to_float(b.d) * 0.125f, 0}; }

ASSAY_FN SignedRows signed_rows(const BlockIQ2_XXS& b, int run) noexcept {
  SignedRows r;
  uint32_t signs_and_scale;
  std::memcpy(&signs_and_scale, b.q + 8 * run + 4, 4);
  r.signs = even_signs_of_four(signs_and_scale);
  for (int part = 0; part < 4; ++part) r.rows[part] = kGridIq2Xxs[b.q[8 * run + part]];
  return r;
}

ASSAY_FN void integer_scales(const BlockIQ2_XXS& b, Integers256& n) noexcept {
  for (int run = 0; run < 8; ++run) {
    uint32_t signs_and_scale;
    std::memcpy(&signs_and_scale, b.q + 8 * run + 4, 4);
    n.scale[2 * run] = n.scale[2 * run + 1] = static_cast<int16_t>(2 * (signs_and_scale >> 28) + 1);
    n.min[2 * run] = n.min[2 * run + 1] = 0;
  }
}

ASSAY_FN void unpack(const BlockIQ2_XXS& b, Integers256& n) noexcept {
  put_runs(b, n);
  integer_scales(b, n);
}

}  // namespace assay::quant
