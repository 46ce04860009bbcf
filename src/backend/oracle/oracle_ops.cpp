// See oracle_ops.h. Sums run in plain order.
#include "backend/oracle/oracle_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>

#include "num/math64.h"

namespace assay::backend::oracle {

void attention_scores(std::span<const double> q, const double* k, int64_t k_stride, int64_t first, int64_t last,
                      double scale, std::span<double> scores) noexcept {
  constexpr int64_t kAbreast = 8;  // sums that do not wait for each other; the last keys are summed with repetitions
  for (int64_t begin = first; begin <= last; begin += kAbreast) {
    const double* keys[kAbreast];
    for (int64_t i = 0; i < kAbreast; ++i) keys[i] = k + std::min(begin + i, last) * k_stride;
    double sums[kAbreast] = {};
    for (size_t d = 0; d < q.size(); ++d) {
      for (int64_t i = 0; i < kAbreast; ++i) sums[i] += q[d] * keys[i][d];
    }
    for (int64_t i = 0; i < kAbreast && begin + i <= last; ++i)
      scores[static_cast<size_t>(begin + i - first)] = sums[i] * scale;
  }
}

double softcap(double x, double cap) noexcept { return cap > 0 ? cap * num::tanh64(x / cap) : x; }

void softmax(std::span<double> x, std::optional<double> sink) noexcept {
  double largest = *std::max_element(x.begin(), x.end());
  if (sink) largest = std::max(largest, *sink);
  double sum = sink ? num::exp64(*sink - largest) : 0.0;
  for (double& value : x) {
    value = num::exp64(value - largest);
    sum += value;
  }
  for (double& value : x) value /= sum;
}

void attend(std::span<const double> q, const HeadCache& cache, int64_t first, int64_t last, const ScoreRule& rule,
            std::span<double> shares, std::span<double> y) noexcept {
  shares = shares.first(static_cast<size_t>(last - first + 1));
  attention_scores(q, cache.k, cache.k_stride, first, last, rule.scale, shares);
  for (double& score : shares) score = softcap(score, rule.softcap);
  softmax(shares, rule.sink);
  std::fill(y.begin(), y.end(), 0.0);
  for (int64_t p = first; p <= last; ++p) {
    const double share = shares[static_cast<size_t>(p - first)];
    const double* v = cache.v + p * cache.v_stride;
    for (size_t d = 0; d < y.size(); ++d) y[d] += share * v[d];
  }
}

}  // namespace assay::backend::oracle
