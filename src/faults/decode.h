// Known ways to decode a block of weights wrongly; rows and single weights of a tensor in float64,
// decoded rightly or so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "quant/format.h"
#include "tensor/view.h"

namespace assay::faults::dictionary {

// A block taken apart: value j is d * scale[j / 16] * w[j] + m * min[j / 16].
struct Parts {
  int64_t n = 0;  // elements: 1, 32 or 256
  double w[256] = {};
  double scale[16] = {}, min[16] = {};
  double d = 1, m = 0;
};

struct DecodeFault {
  const char* id;
  const char* faults;
  const char* text;  // what is done; what would be right
  bool (*applies)(tensor::DType dtype);
  // next: the block behind it in the row, or itself at the row's end
  void (*change)(Parts& parts, tensor::DType dtype, const uint8_t* block, const uint8_t* next);
};
std::span<const DecodeFault> decode_faults() noexcept;
std::string decode_text(const DecodeFault& fault, tensor::DType dtype);

// y: view.shape.cols() values
void right_weight_row(const tensor::TensorView& view, int64_t row, double* y);
void wrong_weight_row(const DecodeFault& fault, const tensor::TensorView& view, int64_t row, double* y);
// One weight by its index in the tensor's memory.
double weight_at(const tensor::TensorView& view, int64_t flat);
// n weights from such an index on.
void weights_at(const tensor::TensorView& view, int64_t flat, int64_t n, double* y);

}  // namespace assay::faults::dictionary
