// Reference of rms_norm.h.
#include "ops/rms_norm.h"

#include <cmath>

#include "num/lanes.h"

namespace assay::ops {

void rms_norm_ref(const float* x, const float* w, float eps, int64_t d, float* y) noexcept {
  num::Lanes32 sum;  // element j goes to lane j % 32
  for (int64_t j = 0; j < d; ++j) sum.fma(j, x[j], x[j]);
  const float r = 1.0f / std::sqrt(sum.fold() / static_cast<float>(d) + eps);
  for (int64_t j = 0; j < d; ++j) y[j] = (x[j] * r) * w[j];
}

}  // namespace assay::ops
