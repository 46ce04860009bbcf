// See logits.h.
#include "support/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay::test {
namespace {

template <class Real>
Best find_best(std::span<const Real> logits) {
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

}  // namespace

double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

double kl_divergence(std::span<const double> truth, std::span<const double> found) {
  const double truth_sum = log_sum_exp(truth), found_sum = log_sum_exp(found);
  double divergence = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double log_p = truth[i] - truth_sum;
    if (log_p > -60)
      divergence += std::exp(log_p) * (log_p - (found[i] - found_sum));  // what is left out adds less than 1e-20
  }
  return divergence;
}

Best best_of(std::span<const float> logits) { return find_best(logits); }
Best best_of(std::span<const double> logits) { return find_best(logits); }

}  // namespace assay::test
