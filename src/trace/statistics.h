// Figures of an op's values, gathered row by row. Every sum runs over the values in their order, one after the other,
// so that a figure does not depend on where a prompt was cut.
#pragma once

#include <span>

#include "assay/trace.h"

namespace assay::trace {

class Statistics {
 public:
  explicit Statistics(bool histogram) : histogram_(histogram) {}
  void add_row(std::span<const double> row, int64_t n_first);
  void finish();  // mean, rms and extremes of figures()
  OpTrace& figures() noexcept { return figures_; }

 private:
  OpTrace figures_;
  bool histogram_;
  int64_t n_finite_ = 0;
  double sum_ = 0, sum_of_squares_ = 0;
};

// Which bin of OpTrace::histogram a finite value other than zero falls into.
int bin_of(double value) noexcept;

}  // namespace assay::trace
