// See base_rows.h.
#include "kld/base_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/index.h"
#include "num/math64.h"

namespace assay::kld {
namespace {

constexpr size_t kBlock = 512;  // elements at a time, which stay in the nearest cache
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The largest; NaN where one is no number, or is plus infinity, or none is finite.
double largest_of(std::span<const float> x) noexcept {
  float largest = kNothing;
  bool good = true;
  for (const float value : x) {
    good &= value < std::numeric_limits<float>::infinity();  // also false for a NaN
    largest = value > largest ? value : largest;
  }
  return good && std::isfinite(largest) ? static_cast<double>(largest) : std::numeric_limits<double>::quiet_NaN();
}

// Sums whose terms do not wait for one another.
class Sum {
 public:
  void add(size_t i, double x) noexcept { lanes_[i % lanes_.size()] += x; }
  double total() const noexcept {
    double sum = 0;
    for (const double lane : lanes_) sum += lane;
    return sum;
  }

 private:
  std::array<double, 8> lanes_{};
};

// Below this times the base's sum a token counts for nothing.
constexpr double kLogNothing = 700;

}  // namespace

BaseRows::BaseRows(int64_t n_rows, int64_t width) : width_(width), logits_(at(n_rows * width)), log_sums_(at(n_rows)) {}

bool BaseRows::set(int64_t row, std::span<const float> logits) noexcept {
  const double largest = largest_of(logits);
  if (std::isnan(largest)) return false;
  std::array<double, kBlock> terms;
  Sum sum;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    num::exp64_less(block, largest, std::span(terms).first(block.size()));
    for (size_t i = 0; i < block.size(); ++i) sum.add(i, terms[i]);
  }
  log_sums_[at(row)] = largest + num::log64(sum.total());
  std::ranges::copy(logits, logits_.begin() + static_cast<std::ptrdiff_t>(row * width_));
  return true;
}

double BaseRows::divergence(int64_t row, std::span<const float> logits) const noexcept {
  if (const double largest = largest_of(logits); std::isnan(largest)) return largest;
  const std::span base = std::span(logits_).subspan(at(row * width_), at(width_));
  const double log_sum = log_sums_[at(row)];
  const auto least = static_cast<float>(log_sum - kLogNothing);
  // Where the base has next to nothing, p exp(d) = exp(b - log_sum) is of weight 1, and p d of none.
  const auto step_of = [&](size_t i) { return logits[i] - (base[i] > least ? base[i] : static_cast<float>(log_sum)); };
  float most = kNothing;
  for (size_t i = 0; i < base.size(); ++i) most = std::max(most, step_of(i));
  std::array<float, kBlock> steps;
  std::array<double, kBlock> p, terms;
  Sum p_sum, p_steps, p_terms;
  for (size_t begin = 0; begin < base.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, base.size() - begin);
    for (size_t i = 0; i < n; ++i) steps[i] = step_of(begin + i);
    num::exp64_less(base.subspan(begin, n), log_sum, std::span(p).first(n));
    num::exp64_less(std::span(steps).first(n), static_cast<double>(most), std::span(terms).first(n));
    for (size_t i = 0; i < n; ++i) {
      const bool counts = base[begin + i] > least;
      p_sum.add(i, p[i]);
      p_terms.add(i, counts ? p[i] * terms[i] : terms[i]);
      p_steps.add(i, counts ? p[i] * static_cast<double>(steps[i]) : 0);
    }
  }
  const double sum = p_sum.total();
  const double divergence = num::log64(p_terms.total() / sum) + static_cast<double>(most) - p_steps.total() / sum;
  return divergence < 0 ? 0 : divergence;  // zero is the least there is; rounding may leave less
}

}  // namespace assay::kld
