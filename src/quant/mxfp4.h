// MXFP4: 32 floats of 4 bits (E2M1) with a power of two as their scale. The integers are twice the values; d is half
// the scale. Source: OCP Microscaling Formats (MX) Specification v1.0. As in every GGUF reader, exponent 255 is 2^128
// and not a NaN.
#pragma once

#include "quant/block.h"
#include "quant/codebooks.h"

namespace assay::quant {

struct BlockMXFP4 {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 12;
  uint8_t exponent;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

// 2^(exponent - 128), subnormal for exponents 0 and 1.
ASSAY_FN BlockScales scales(const BlockMXFP4& b) noexcept {
  const uint32_t e = b.exponent;
  return {std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0};
}

ASSAY_FN void unpack(const BlockMXFP4& b, Integers32& n) noexcept {
  for (int j = 0; j < 16; ++j) {
    n.w[j] = kLevelsMxfp4[b.nibbles[j] & 15];
    n.w[j + 16] = kLevelsMxfp4[b.nibbles[j] >> 4];
  }
}

}  // namespace assay::quant
