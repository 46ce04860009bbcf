// The codebooks that define the IQ formats: row i of a grid is 8 (or 4) signed bytes, the first in the lowest byte of
// the word. Source: the definition of the formats, as the Python package `gguf` carries it; written by
// tests/data/make_codebooks.py.
#pragma once

#include <cstdint>

#include "num/device.h"
#include "quant/codebook_grids.h"

namespace assay::quant {

// Non-linear 4-bit levels of IQ4_NL and IQ4_XS; twice the values of MXFP4's 4-bit floats.
ASSAY_TABLE int8_t kLevelsIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
ASSAY_TABLE int8_t kLevelsMxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace assay::quant
