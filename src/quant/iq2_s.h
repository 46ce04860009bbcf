// IQ2_S: rows of 8 from a grid of 1024, a sign bit for each weight, a nibble s for each 16: value (d / 8) * (2s + 1) *
// level.
#pragma once

#include "quant/block.h"
#include "quant/iq_signs.h"

namespace assay::quant {

struct BlockIQ2_S {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 43, kMaxScale = 31, kMaxMin = 0;
  uint16_t d;
  uint8_t q[32];  // low 8 bits of the row numbers
  uint8_t signs[32];
  uint8_t high_bits[8];  // two top bits of row number 4i + k at 2k
  uint8_t sub_scales[8];
};
static_assert(sizeof(BlockIQ2_S) == 82);

ASSAY_FN BlockScales scales(const BlockIQ2_S& b) noexcept { return {num::half_to_float(b.d) * 0.125f, 0}; }

ASSAY_FN SignedRows signed_rows(const BlockIQ2_S& b, int run) noexcept {
  SignedRows r;
  std::memcpy(&r.signs, b.signs + 4 * run, 4);
  for (int part = 0; part < 4; ++part) {
    const int high = (b.high_bits[run] >> (2 * part)) & 3;
    r.rows[part] = kGridIq2S[b.q[4 * run + part] | (high << 8)];
  }
  return r;
}

ASSAY_FN void integer_scales(const BlockIQ2_S& b, Integers256& n) noexcept {
  for (int group = 0; group < 16; ++group) {
    n.scale[group] = static_cast<int16_t>(2 * ((b.sub_scales[group / 2] >> (4 * (group % 2))) & 15) + 1);
    n.min[group] = 0;
  }
}

ASSAY_FN void unpack(const BlockIQ2_S& b, Integers256& n) noexcept {
  put_runs(b, n);
  integer_scales(b, n);
}

}  // namespace assay::quant
