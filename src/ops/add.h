// y[j] = a[j] + b[j]; f32, y may alias either. Bits: one rounding each.
#pragma once

#include <cstdint>

namespace assay::ops {

void add_ref(const float* a, const float* b, int64_t n, float* y) noexcept;

}  // namespace assay::ops
