// Matrix products in plain float loops over decoded weights, with activations as floats or as integers of 8 bits, and
// the faults that kernels of other engines had in this place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "faulty/fault.h"
#include "tensor/view.h"

namespace assay::faults {

struct PlainMatrix {
  tensor::TensorView tensor;   // as the file has it
  std::vector<float> decoded;  // [rows, cols]
  std::vector<float> bias;     // empty, or [rows]
  int64_t rows() const { return tensor.shape.rows(); }
  int64_t cols() const { return tensor.shape.cols(); }
};

// x [n, cols], y [n, rows]. activation_bits: 0 or 8; float weights take floats in either case.
void linear_plain(const PlainMatrix& w, std::span<const float> x, int64_t n, int activation_bits, Fault fault,
                  std::span<float> y);

}  // namespace assay::faults
