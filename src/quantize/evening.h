// An importance matrix made more even for the formats that would otherwise pay for it with too much plain error.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace assay::quantizing {

// The share of a row's mean importance that is added to each of its columns before weights are encoded as dtype; 0 for
// most formats. docs/quantize.md has the measurement.
float evening_share(tensor::DType dtype) noexcept;

// importance: rows of n_columns each; evened in every row by its own mean.
std::vector<float> evened(std::span<const float> importance, int64_t n_columns, tensor::DType dtype);

}  // namespace assay::quantizing
