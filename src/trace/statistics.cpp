// See statistics.h.
#include "trace/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay::trace {

int bin_of(double value) noexcept {
  const int exponent = std::ilogb(value) + 24;
  return std::clamp(exponent >> 1, 0, kTraceBins - 1);
}

void Statistics::add_row(std::span<const double> row, int64_t n_first) {
  if (figures_.n_rows == 0) {
    figures_.first.assign(row.begin(),
                          row.begin() + std::min<std::ptrdiff_t>(n_first, static_cast<std::ptrdiff_t>(row.size())));
    figures_.smallest = std::numeric_limits<double>::infinity();
    figures_.largest = -std::numeric_limits<double>::infinity();
  }
  ++figures_.n_rows;
  for (const double value : row) {
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? figures_.n_nan : figures_.n_infinite);
      continue;
    }
    ++n_finite_;
    sum_ += value;
    sum_of_squares_ += value * value;
    figures_.smallest = std::min(figures_.smallest, value);
    figures_.largest = std::max(figures_.largest, value);
    if (value == 0) {
      ++figures_.n_zero;
    } else if (histogram_) {
      ++figures_.histogram[static_cast<size_t>(bin_of(value))];
    }
  }
}

void Statistics::finish() {
  if (n_finite_ == 0) {
    figures_.mean = figures_.rms = figures_.smallest = figures_.largest = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  const auto n = static_cast<double>(n_finite_);
  figures_.mean = sum_ / n;
  figures_.rms = std::sqrt(sum_of_squares_ / n);
}

}  // namespace assay::trace
