// Rows of float weights to be multiplied: a matrix, a part of one, or what has been decoded of one.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace assay::backend::cuda {

struct FloatRows {
  tensor::DType dtype = tensor::DType::F32;  // F32, F16, BF16
  const void* w = nullptr;                   // n_rows of them, one after the other
  int64_t n_rows = 0;
  const float* bias = nullptr;  // null: none
  float* y = nullptr;           // of the first row and the first token
  int64_t y_width = 0;          // from token to token
};

}  // namespace assay::backend::cuda
