// Rounding to whole numbers without libm and without the rounding mode's instruction.
#pragma once

#include "num/device.h"

namespace assay::num {

// To the nearest integer, ties to even, for |x| < 2^22 (a NaN stays one). The sum has no bits below 1, so the addition
// itself rounds.
ASSAY_FN float rint_small(float x) noexcept { return (x + 0x1.8p23f) - 0x1.8p23f; }

}  // namespace assay::num
