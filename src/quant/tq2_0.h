// TQ2_0: 256 weights of 2 bits around 1; they lie as in Q2_K. The format means {-1, 0, 1}; the fourth level is 2, as
// every reader has it.
#pragma once

#include "quant/block.h"

namespace assay::quant {

struct BlockTQ2_0 {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 2, kMaxScale = 1, kMaxMin = 0;
  uint8_t q[64];
  uint16_t d;
};
static_assert(sizeof(BlockTQ2_0) == 66);

ASSAY_FN BlockScales scales(const BlockTQ2_0& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN void unpack(const BlockTQ2_0& b, Integers256& n) noexcept {
  for (int run = 0; run < 8; ++run) {  // of 32, one shift each
    const uint8_t* q = b.q + run / 4 * 32;
    for (int i = 0; i < 32; ++i) n.w[32 * run + i] = static_cast<int8_t>((q[i] >> (2 * (run % 4)) & 3) - 1);
  }
  for (int group = 0; group < 16; ++group) {
    n.scale[group] = 1;
    n.min[group] = 0;
  }
}

}  // namespace assay::quant
