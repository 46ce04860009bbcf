// Reference of rope.h, and the tables that every device uses.
#include "ops/rope.h"

#include "num/lanes.h"
#include "num/math64.h"

namespace assay::ops {

void rope_angles(const RopeSpec& spec, int64_t position, float* cos, float* sin) noexcept {
  for (size_t i = 0; i < spec.inverse_frequency.size(); ++i) {
    const double angle = static_cast<double>(position) * spec.inverse_frequency[i];
    cos[i] = static_cast<float>(num::cos64(angle) * spec.magnitude);
    sin[i] = static_cast<float>(num::sin64(angle) * spec.magnitude);
  }
}

void rope_ref(const float* x, const float* cos, const float* sin, int64_t dim, bool interleaved, int64_t head_dim, float* y) noexcept {
  for (int64_t i = 0; i < dim / 2; ++i) {
    const int64_t a = interleaved ? 2 * i : i;
    const int64_t b = interleaved ? 2 * i + 1 : i + dim / 2;
    const float x_a = x[a], x_b = x[b];
    y[a] = num::fma(x_a, cos[i], -(x_b * sin[i]));
    y[b] = num::fma(x_a, sin[i], x_b * cos[i]);
  }
  for (int64_t j = dim; j < head_dim; ++j) y[j] = x[j];
}

}  // namespace assay::ops
