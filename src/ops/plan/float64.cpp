// See float64.h.
#include "ops/plan/float64.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "num/math64.h"

namespace assay::ops {

std::vector<double> vector_of(const Weight& weight) {
  std::vector<float> values(static_cast<size_t>(weight.view.shape.elements()));
  std::memcpy(values.data(), weight.view.data.data(), values.size() * sizeof(float));
  return {values.begin(), values.end()};
}

void rms_norm64(std::span<const double> x, std::span<const double> w, double eps, std::span<double> y) noexcept {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (size_t j = 0; j < x.size(); ++j) y[j] = w.empty() ? x[j] / root : x[j] / root * w[j];
}

void rotate64(const RopeSpec& spec, double position, int64_t n_heads, int64_t head_dim, std::span<const double> x,
              std::span<double> y) {
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

}  // namespace assay::ops
