// Transcendental functions of binary64 for RoPE's tables and the oracle. Own code, so that the tables have the same
// bits wherever they are made; host only. Errors stand in docs/numerics.md.
#pragma once

#include <span>

namespace assay::num {

double exp64(double x) noexcept;
// y[i] = exp64(x[i] - minus), the same bits, several at a time; no NaN. y is as long as x.
void exp64_less(std::span<const float> x, double minus, std::span<double> y) noexcept;
double log64(double x) noexcept;            // x > 0; 0 gives -infinity, below 0 a NaN
double pow64(double x, double y) noexcept;  // x > 0; pow64(x, 0) == 1
// |x| <= 2^31 (every position at one radian each); a NaN beyond, never a wrong value.
double sin64(double x) noexcept;
double cos64(double x) noexcept;
double tanh64(double x) noexcept;

}  // namespace assay::num
