// Statistics of a sample.
#pragma once

#include <span>
#include <vector>

#include "assay/perplexity.h"

namespace assay::measure {

struct Mean {
  double value = 0;
  double standard_error = 0;  // sqrt((mean of squares - square of mean) / (n - 1)); 0 for fewer than two values
};
Mean mean_of(std::span<const double> values);

Distribution distribution_of(std::vector<double> values);

}  // namespace assay::measure
