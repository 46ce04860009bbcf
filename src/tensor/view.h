// Shapes and non-owning views. A view must not outlive what it points into; the comment where one is stored says what
// that is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace assay::tensor {

// Row-major, read left to right, last dimension contiguous. GGUF lists dimensions the other way round; gguf/ turns them
// once.
struct Shape {
  std::array<int64_t, 4> dims{1, 1, 1, 1};  // dims[0] .. dims[rank - 1]
  int rank = 1;

  int64_t cols() const noexcept { return dims[static_cast<size_t>(rank - 1)]; }
  int64_t rows() const noexcept {  // product of all but the last
    int64_t product = 1;
    for (int i = 0; i + 1 < rank; ++i) product *= dims[static_cast<size_t>(i)];
    return product;
  }
  int64_t elements() const noexcept { return rows() * cols(); }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// A tensor as its file stores it: rows of blocks.
struct TensorView {
  DType dtype = DType::F32;
  Shape shape;
  std::span<const std::byte> data;  // rows() * row_bytes() bytes

  int64_t row_bytes() const noexcept {
    const DTypeTraits& t = traits(dtype);
    return shape.cols() / t.block_elements * t.block_bytes;
  }
  const std::byte* row(int64_t i) const noexcept { return data.data() + i * row_bytes(); }
};

// Rows of f32 at a stride in elements.
struct Mat {
  float* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  float* row(int64_t i) const noexcept { return data + i * stride; }
  float& operator()(int64_t i, int64_t j) const noexcept { return data[i * stride + j]; }
};
struct ConstMat {
  const float* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  ConstMat() = default;
  ConstMat(const float* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  ConstMat(const Mat& m) : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}  // NOLINT: widening view
  const float* row(int64_t i) const noexcept { return data + i * stride; }
  float operator()(int64_t i, int64_t j) const noexcept { return data[i * stride + j]; }
};

}  // namespace assay::tensor
