// See distribution.h.
#include "measure/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay::measure {
namespace {

// Between the two values nearest to share * (n - 1), as numpy's default does.
double percentile(std::span<const double> sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const double part = place - static_cast<double>(below);
  if (part == 0 || below + 1 == sorted.size()) return sorted[below];
  return sorted[below] * (1 - part) + sorted[below + 1] * part;
}

}  // namespace

Mean mean_of(std::span<const double> values) {
  if (values.empty()) return {};
  const double n = static_cast<double>(values.size());
  double sum = 0;
  for (const double x : values) sum += x;
  Mean result{sum / n, 0};
  if (values.size() < 2) return result;
  double squares = 0;  // of the distances from the mean: nothing cancels
  for (const double x : values) squares += (x - result.value) * (x - result.value);
  result.standard_error = std::sqrt(squares / n / (n - 1));
  return result;
}

Distribution distribution_of(std::vector<double> values) {
  if (values.empty()) return {};
  if (std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); })) {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    return {kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN};
  }
  Distribution d;
  const Mean mean = mean_of(values);
  d.mean = mean.value;
  d.standard_error = mean.standard_error;
  std::sort(values.begin(), values.end());
  d.smallest = values.front();
  d.p0_1 = percentile(values, 0.001);
  d.p1 = percentile(values, 0.01);
  d.p10 = percentile(values, 0.1);
  d.median = percentile(values, 0.5);
  d.p90 = percentile(values, 0.9);
  d.p99 = percentile(values, 0.99);
  d.p99_9 = percentile(values, 0.999);
  d.largest = values.back();
  for (double& x : values) x *= x;
  const Mean square = mean_of(values);
  d.rms = std::sqrt(square.value);
  d.rms_error = d.rms > 0 ? 0.5 / d.rms * square.standard_error : 0;
  return d;
}

}  // namespace assay::measure
