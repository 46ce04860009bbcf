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

ASSAY_FN SignedRows signed_rows(const BlockIQ3_S& b, int run) noexcept {
  SignedRows r;
  std::memcpy(&r.signs, b.signs + 4 * run, 4);
  for (int part = 0; part < 4; ++part) {
    const uint8_t* q = b.q + 8 * run + 2 * part;
    const int high = b.high_bits[run] >> (2 * part);
    r.rows[part] = kGridIq3S[q[0] | (high & 1) << 8] | static_cast<uint64_t>(kGridIq3S[q[1] | (high & 2) << 7]) << 32;
  }
  return r;
}

ASSAY_FN void integer_scales(const BlockIQ3_S& b, Integers256& n) noexcept {
  for (int i = 0; i < 8; ++i) {
    const int s = (b.sub_scales[i / 2] >> (4 * (i % 2))) & 15;
    n.scale[2 * i] = n.scale[2 * i + 1] = static_cast<int16_t>(2 * s + 1);
    n.min[2 * i] = n.min[2 * i + 1] = 0;
  }
}

ASSAY_FN void unpack(const BlockIQ3_S& b, Integers256& n) noexcept {
  put_runs(b, n);
  integer_scales(b, n);
}

}  // namespace assay::quant
