// The 12 bytes in which Q4_K and Q5_K pack 8 scales and 8 minima of 6 bits.
#pragma once

#include "quant/block.h"

namespace assay::quant {

// Sub-blocks 0..3: the low 6 bits of bytes 0..3 (scales) and 4..7 (minima). Sub-blocks 4..7: nibbles of bytes 8..11,
// with their top two bits in the top of bytes 0..7. Each sub-block is two groups of 16.
ASSAY_FN void unpack_k_scales(const uint8_t* packed, Integers256& n) noexcept {
  for (int i = 0; i < 8; ++i) {
    int scale, min;
    if (i < 4) {
      scale = packed[i] & 63;
      min = packed[i + 4] & 63;
    } else {
      scale = (packed[i + 4] & 15) | ((packed[i - 4] >> 6) << 4);
      min = (packed[i + 4] >> 4) | ((packed[i] >> 6) << 4);
    }
    n.scale[2 * i] = n.scale[2 * i + 1] = static_cast<int16_t>(scale);
    n.min[2 * i] = n.min[2 * i + 1] = static_cast<int16_t>(min);
  }
}

}  // namespace assay::quant
