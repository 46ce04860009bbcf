// What makes one vector of the rows of a text: an embedding.
//   mean: y[j] = (sum_t x[t, j]) / n    cls: y = x[0]    last: y = x[n - 1]
//   dense: y[i] = sum_j W[i, j] x[j]    unit: y[j] = x[j] / sqrt(sum_j x[j]^2), zeros where that is 0
// Bits: in float64, so that the rows of one mode and of the oracle have one definition. Each sum is a plain chain from
//   +0, a product rounded before it is added: the mean's over t ascending, then one division; the others' over j
//   ascending. Nothing is rounded to float32 before the last of them.
// So an embedding depends on its text's rows alone, wherever the text was cut into chunks and whatever ran beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tensor/view.h"

namespace assay::ops {

enum class Pooling { mean, cls, last };

// Takes the rows of one text, position by position.
class Pool {
 public:
  Pool(Pooling pooling, int64_t width) : pooling_(pooling), sum_(static_cast<size_t>(width), 0.0) {}

  // Whether the row of this position of a text of n_tokens is asked for.
  static bool wants(Pooling pooling, int64_t position, int64_t n_tokens) noexcept;
  void add(std::span<const double> row) noexcept;
  std::vector<double> take() &&;  // after the last of them

 private:
  Pooling pooling_;
  std::vector<double> sum_;
  int64_t n_ = 0;
};

// w: [width of y, x.size()] in any weight format.
std::vector<double> dense_ref(std::span<const double> x, const tensor::TensorView& w);
void normalise_ref(std::span<double> x) noexcept;

}  // namespace assay::ops
