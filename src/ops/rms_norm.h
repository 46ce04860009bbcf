// y[j] = x[j] / sqrt(mean_j x[j]^2 + eps) * w[j]
//   One run of d elements (a token's row, or one head of it): x, y f32 [d], y may alias x; w f32 [d]; eps absolute (hparam norm_eps).
// Bits: squares by fma into Lanes32 over j ascending, folded 16, 8, 4, 2, 1; / d, + eps, sqrt, 1 / : each IEEE-rounded once; then
//   (x * r) * w in that order. One run's bits depend on that run alone.
// Source: Zhang and Sennrich 2019, arXiv:1910.07467.
#pragma once

#include <cstdint>

namespace assay::ops {

void rms_norm_ref(const float* x, const float* w, float eps, int64_t d, float* y) noexcept;

}  // namespace assay::ops
