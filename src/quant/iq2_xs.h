// IQ2_XS: rows of 8 from a grid of 512. A word of 16 bits is a row number (9) and 7 sign bits; a nibble s for each 16
// weights, value (d / 8) * (2s + 1) * level.
#pragma once

#include "quant/block.h"
#include "quant/iq_signs.h"

namespace assay::quant {

struct BlockIQ2_XS {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 43, kMaxScale = 31, kMaxMin = 0;
  uint16_t d;
  uint16_t q[32];
  uint8_t sub_scales[8];
};
static_assert(sizeof(BlockIQ2_XS) == 74);

ASSAY_FN BlockScales scales(const BlockIQ2_XS& b) noexcept { return {num::half_to_float(b.d) * 0.125f, 0}; }

ASSAY_FN SignedRows signed_rows(const BlockIQ2_XS& b, int run) noexcept {
  SignedRows r;
  uint32_t sevens = 0;
  for (int part = 0; part < 4; ++part) {
    const uint32_t q = b.q[4 * run + part];
    r.rows[part] = kGridIq2Xs[q & 511];
    sevens |= (q >> 9) << (7 * part);
  }
  r.signs = even_signs_of_four(sevens);
  return r;
}

ASSAY_FN void integer_scales(const BlockIQ2_XS& b, Integers256& n) noexcept {
  for (int group = 0; group < 16; ++group) {
    n.scale[group] = static_cast<int16_t>(2 * ((b.sub_scales[group / 2] >> (4 * (group % 2))) & 15) + 1);
    n.min[group] = 0;
  }
}

ASSAY_FN void unpack(const BlockIQ2_XS& b, Integers256& n) noexcept {
  put_runs(b, n);
  integer_scales(b, n);
}

}  // namespace assay::quant
