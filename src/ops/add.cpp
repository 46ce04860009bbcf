// Reference of add.h.
#include "ops/add.h"

namespace assay::ops {

void add_ref(const float* a, const float* b, int64_t n, float* y) noexcept {
  for (int64_t j = 0; j < n; ++j) y[j] = a[j] + b[j];
}

}  // namespace assay::ops
