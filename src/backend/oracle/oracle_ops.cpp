// See oracle_ops.h. Sums run in plain order.
#include "backend/oracle/oracle_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>

#include "num/math64.h"

namespace assay::backend::oracle {

std::vector<double> vector_of(const ops::Weight& weight) {
  std::vector<float> values(static_cast<size_t>(weight.view.shape.elements()));
  std::memcpy(values.data(), weight.view.data.data(), values.size() * sizeof(float));
  return {values.begin(), values.end()};
}

void rms_norm(std::span<const double> x, std::span<const double> w, double eps, std::span<double> y) noexcept {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (size_t j = 0; j < x.size(); ++j) y[j] = x[j] / root * w[j];
}

void rotate(const ops::RopeSpec& spec, double position, int64_t n_heads, int64_t head_dim, std::span<const double> x, std::span<double> y) {
  if (x.data() != y.data()) std::copy(x.begin(), x.end(), y.begin());  // what is beyond spec.dim passes through
  const int64_t half = spec.dim / 2;
  for (int64_t pair = 0; pair < half; ++pair) {
    const double angle = position * spec.inverse_frequency[static_cast<size_t>(pair)];
    const double cos = num::cos64(angle) * spec.magnitude, sin = num::sin64(angle) * spec.magnitude;
    for (int64_t head = 0; head < n_heads; ++head) {
      const int64_t first = head * head_dim;
      const auto a = static_cast<size_t>(first + (spec.interleaved ? 2 * pair : pair));
      const auto b = static_cast<size_t>(first + (spec.interleaved ? 2 * pair + 1 : pair + half));
      const double x_a = x[a], x_b = x[b];
      y[a] = x_a * cos - x_b * sin;
      y[b] = x_a * sin + x_b * cos;
    }
  }
}

void attention_scores(std::span<const double> q, const double* k, int64_t k_stride, int64_t first, int64_t last, double scale,
                      std::span<double> scores) noexcept {
  constexpr int64_t kAbreast = 8;  // sums that do not wait for each other; the last keys are summed with repetitions
  for (int64_t begin = first; begin <= last; begin += kAbreast) {
    const double* keys[kAbreast];
    for (int64_t i = 0; i < kAbreast; ++i) keys[i] = k + std::min(begin + i, last) * k_stride;
    double sums[kAbreast] = {};
    for (size_t d = 0; d < q.size(); ++d) {
      for (int64_t i = 0; i < kAbreast; ++i) sums[i] += q[d] * keys[i][d];
    }
    for (int64_t i = 0; i < kAbreast && begin + i <= last; ++i) scores[static_cast<size_t>(begin + i - first)] = sums[i] * scale;
  }
}

void softmax(std::span<double> x) noexcept {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) {
    value = num::exp64(value - largest);
    sum += value;
  }
  for (double& value : x) value /= sum;
}

void attend(std::span<const double> q, const HeadCache& cache, int64_t first, int64_t last, double scale, std::span<double> shares,
            std::span<double> y) noexcept {
  shares = shares.first(static_cast<size_t>(last - first + 1));
  attention_scores(q, cache.k, cache.k_stride, first, last, scale, shares);
  softmax(shares);
  std::fill(y.begin(), y.end(), 0.0);
  for (int64_t p = first; p <= last; ++p) {
    const double share = shares[static_cast<size_t>(p - first)];
    const double* v = cache.v + p * cache.v_stride;
    for (size_t d = 0; d < y.size(); ++d) y[d] += share * v[d];
  }
}

double silu(double x) noexcept { return x / (1 + num::exp64(-x)); }

// 0.5 x (1 + tanh(u)) without the cancellation of 1 + tanh(u) below zero.
double gelu_tanh(double x) noexcept {
  return x / (1 + num::exp64(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

}  // namespace assay::backend::oracle
