// What the IQ2 and IQ3 formats share: grid rows with signs.
#pragma once

#include "quant/block.h"
#include "quant/codebooks.h"

namespace assay::quant {

// Seven sign bits are stored; the eighth makes their number even.
ASSAY_FN uint32_t even_signs(uint32_t seven_bits) noexcept {
  uint32_t parity = seven_bits ^ (seven_bits >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven_bits | ((parity & 1) << 7);
}

// n bytes of a grid row (the first lowest), negated where the sign bit is set.
ASSAY_FN void put_signed(uint64_t row, uint32_t signs, int n, int8_t* w) noexcept {
  for (int j = 0; j < n; ++j) {
    const int level = static_cast<int>((row >> (8 * j)) & 255);
    w[j] = static_cast<int8_t>(((signs >> j) & 1) != 0 ? -level : level);
  }
}

}  // namespace assay::quant
