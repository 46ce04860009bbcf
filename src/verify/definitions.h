// What the bytes of each weight format mean, written once more straight from the formats' published
// layout, element by element and in double: where the bits of element j lie, and what they are
// multiplied with. It shares no code with quant/ (only the codebooks of the IQ formats, which are
// data), so that a mistake would have to be made twice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace assay::verify {

// False for integer and f64 tensors, which are no weights.
bool has_definition(tensor::DType dtype) noexcept;

// Element j of a block of that type, exact but for formats with a minimum whose two scales lie more
// than 2^30 apart. NaN where a scale is.
double defined_value(tensor::DType dtype, const std::byte* block, int64_t j) noexcept;

// Whether every scale of the block is a finite number (of float formats: every element).
bool scales_are_finite(tensor::DType dtype, const std::byte* block) noexcept;

}  // namespace assay::verify
