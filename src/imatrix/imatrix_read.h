// Importance matrices from bytes, for imatrix.cpp and for fuzzing.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "assay/imatrix.h"

namespace assay::imatrix {

// Either form, told apart by the magic. Errors begin with `source`.
Imatrix read_bytes(std::span<const std::byte> bytes, const std::string& source);

}  // namespace assay::imatrix
