// What tests ask of a row of logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace assay::test {

inline double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

// The best token, the lowest id of equal ones, and how far the second best is behind.
struct Best {
  int32_t token = -1;
  double margin = 0;
};
template <class Real>
Best best_of(std::span<const Real> logits) {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  double first = kLowest, second = kLowest;
  Best best;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double x = static_cast<double>(logits[i]);
    if (x > first) {
      second = first;
      first = x;
      best.token = static_cast<int32_t>(i);
    } else if (x > second) {
      second = x;
    }
  }
  best.margin = first - second;
  return best;
}

}  // namespace assay::test
