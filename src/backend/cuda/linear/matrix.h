// A weight matrix in the device's memory. The blocks of a format with its own fast kernel are cut into parts (scales,
// low bits, high bits), each part of all blocks side by side, so that a thread can load 16 aligned bytes; the bytes are
// the file's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace assay::backend::cuda {

inline constexpr int kPartsMax = 4;

// Block i of part p begins at base[p] + i * bytes[p].
struct Parts {
  const uint8_t* base[kPartsMax] = {};
  int32_t bytes[kPartsMax] = {};
  int32_t n = 0;
};

struct Matrix {
  tensor::DType dtype = tensor::DType::F32;
  int64_t rows = 0, cols = 0;
  Parts parts;
};

// The bytes of each part of a format's block; one part: left as the file has it.
struct PartBytes {
  int32_t bytes[kPartsMax] = {};
  int32_t n = 0;
};
PartBytes part_bytes(tensor::DType dtype, bool whole_blocks) noexcept;

}  // namespace assay::backend::cuda
