// See pooling.h.
#include "ops/attention/pooling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quant/format.h"

namespace assay::ops {

bool Pool::wants(Pooling pooling, int64_t position, int64_t n_tokens) noexcept {
  switch (pooling) {
    case Pooling::mean: return true;
    case Pooling::cls: return position == 0;
    case Pooling::last: return position + 1 == n_tokens;
  }
  return false;
}

void Pool::add(std::span<const double> row) noexcept {
  for (size_t j = 0; j < sum_.size(); ++j) sum_[j] += row[j];
  ++n_;
}

std::vector<double> Pool::take() && {
  if (pooling_ == Pooling::mean) {
    for (double& x : sum_) x = x / static_cast<double>(n_);
  }
  return std::move(sum_);
}

std::vector<double> dense_ref(std::span<const double> x, const tensor::TensorView& w) {
  const quant::Format& format = *quant::find_format(w.dtype);
  std::vector<float> row(x.size());
  std::vector<double> y(static_cast<size_t>(w.shape.rows()));
  for (size_t i = 0; i < y.size(); ++i) {
    quant::decode_row(format, w.row(static_cast<int64_t>(i)), static_cast<int64_t>(row.size()), row.data());
    double sum = 0;
    for (size_t j = 0; j < row.size(); ++j) sum += static_cast<double>(row[j]) * x[j];
    y[i] = sum;
  }
  return y;
}

void normalise_ref(std::span<double> x) noexcept {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double length = std::sqrt(squares);
  if (length == 0) return;  // zeros stay
  for (double& v : x) v = v / length;
}

}  // namespace assay::ops
