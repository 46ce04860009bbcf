// See base_rows.h.
#include "kld/base_rows.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "base/index.h"
#include "num/math64.h"

namespace assay::kld {
namespace {

constexpr size_t kSumLanes = 8;  // sums that do not wait for one another

// The largest; NaN where one is no number, or is plus infinity, or none is finite.
double largest_of(std::span<const float> x) noexcept {
  float largest = -std::numeric_limits<float>::infinity();
  bool good = true;
  for (const float value : x) {
    good &= value < std::numeric_limits<float>::infinity();  // also false for a NaN
    largest = value > largest ? value : largest;
  }
  return good && std::isfinite(largest) ? static_cast<double>(largest) : std::numeric_limits<double>::quiet_NaN();
}

double sum_of(std::span<const double> x) noexcept {
  double lanes[kSumLanes] = {};
  for (size_t i = 0; i < x.size(); ++i) lanes[i % kSumLanes] += x[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// sum p x, without the terms that p has none of.
double mean_of_logits(std::span<const float> p, std::span<const float> x) noexcept {
  double lanes[kSumLanes] = {};
  for (size_t i = 0; i < x.size(); ++i) lanes[i % kSumLanes] += p[i] == 0 ? 0.0 : static_cast<double>(p[i]) * static_cast<double>(x[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

BaseRows::BaseRows(int64_t n_rows, int64_t width) : width_(width), p_(at(n_rows * width)), facts_(at(n_rows)) {}

bool BaseRows::set(int64_t row, std::span<const float> logits, std::span<double> scratch) noexcept {
  const double largest = largest_of(logits);
  if (std::isnan(largest)) return false;
  num::exp64_less(logits, largest, scratch);
  const double sum = sum_of(scratch);
  const std::span p = std::span(p_).subspan(at(row * width_), at(width_));
  double p_sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = static_cast<float>(scratch[i] / sum);
    p_sum += static_cast<double>(p[i]);
  }
  facts_[at(row)] = {largest + num::log64(sum), p_sum, mean_of_logits(p, logits)};
  return true;
}

double BaseRows::divergence(int64_t row, std::span<const float> logits, std::span<double> scratch) const noexcept {
  const double largest = largest_of(logits);
  if (std::isnan(largest)) return largest;
  num::exp64_less(logits, largest, scratch);
  const double log_sum_exp = largest + num::log64(sum_of(scratch));
  const Facts& base = facts_[at(row)];
  const std::span p = std::span(p_).subspan(at(row * width_), at(width_));
  const double divergence = base.p_logits - mean_of_logits(p, logits) + base.p_sum * (log_sum_exp - base.log_sum_exp);
  return divergence < 0 ? 0 : divergence;  // zero is the least there is; rounding may leave less
}

}  // namespace assay::kld
