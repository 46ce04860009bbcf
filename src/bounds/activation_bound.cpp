// See row_bound.h: activation functions.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "bounds/row_bound.h"
#include "num/math64.h"

namespace assay::bounds {
namespace {

constexpr double kUnderflow = 3e-37;  // |x| / infinity, where exp(-x) overflowed: the true value is below this

// x / (1 + e), e = exp(-x) good to 2 u: (e / (1 + e)) 2 u, then the sum and the quotient.
// |silu''| <= 1/2, |silu'| < 1.1.
ActivationBound silu_bound(const RowScope& s, double x, double dx) {
  const double e = num::exp64(-x), sigma = 1 / (1 + e);
  const double y = x * sigma, slope = std::fabs(sigma * (1 + x * (1 - sigma)));
  const double moved = dx == 0 ? 0 : dx * std::min(1.1, slope + 0.5 * dx);
  const double rounding = s.declared.own_sums ? gamma(2 * (1 - sigma) + 2.1, s.u) : gamma(10, s.u);
  return {y, moved + rounding * (std::fabs(y) + moved) + kUnderflow};
}

// x / (1 + e), e = exp(-v), v = x fma(x x, c3, c1) good to 4 u (two constants, x x, fma,
// product): exp turns that into 4 |v| u. Others write 1 + tanh, which cancels below zero: 4 u |x|
// absolute. |gelu''| < 1, |gelu'| < 1.2.
ActivationBound gelu_bound(const RowScope& s, double x, double dx) {
  const double c1 = 2 * std::sqrt(2 / std::numbers::pi), c3 = 0.044715 * c1;
  const double v = x * (c1 + c3 * x * x), e = num::exp64(-v), sigma = 1 / (1 + e);
  const double y = x * sigma, slope = std::fabs(sigma + x * sigma * (1 - sigma) * (c1 + 3 * c3 * x * x));
  const double slope_max =
      std::isfinite(slope) ? slope : 0;  // far out e is infinite and the product of 0 and infinity none
  if (s.declared.gelu_table_f16) dx += kUnitHalf * std::fabs(x) + kTinyHalf;
  const double moved = dx == 0 ? 0 : dx * std::min(1.2, slope_max + dx);
  double error = moved + kUnderflow;
  if (s.declared.own_sums) {
    const double v_error = 4 * std::min(std::fabs(v), 1000.0);
    error += gamma((1 - sigma) * (v_error + 2) + 2.1, s.u) * (std::fabs(y) + moved);
  } else {
    error += 8 * s.u * (std::fabs(x) + std::fabs(y));
  }
  if (s.declared.gelu_table_f16) error += kUnitHalf * (std::fabs(y) + moved) + kTinyHalf;
  return {y, error};
}

// x times the normal distribution: the tail is good to 14 u, whatever x. |gelu'| < 1.13, |gelu''| < 0.8.
ActivationBound gelu_erf_bound(const RowScope& s, double x, double dx) {
  const double tail = 0.5 * std::erfc(std::fabs(x) / std::numbers::sqrt2);
  const double slope = std::fabs((x > 0 ? 1 - tail : tail) +
                                 x * num::exp64(-std::min(x * x / 2, 700.0)) / std::sqrt(2 * std::numbers::pi));
  const double y = ops::gelu_erf64(x), moved = dx == 0 ? 0 : dx * std::min(1.2, slope + dx);
  return {y, moved + gamma(15, s.u) * (std::fabs(x) * tail + moved) + 2 * s.u * (std::fabs(y) + moved) + kUnderflow};
}

ActivationBound relu_squared_bound(const RowScope& s, double x, double dx) {
  const double y = ops::relu_squared64(x), largest = std::max(x, 0.0) + dx;
  const double moved = x + dx <= 0 ? 0 : dx * 2 * largest;
  return {y, moved + s.u * (y + moved)};
}

// |sigmoid'| <= 1/4; exp good to 2 u, then the sum and the quotient.
ActivationBound sigmoid_bound(const RowScope& s, double x, double dx) {
  const double y = ops::sigmoid64(x), moved = dx / 4;
  return {y, moved + gamma(s.declared.own_sums ? 2 * (1 - y) + 2.1 : 10, s.u) * (y + moved) + kUnderflow};
}

// |softplus'| <= 1; exp good to 2 u, the series and the two sums to 8.
ActivationBound softplus_bound(const RowScope& s, double x, double dx) {
  const double y = ops::softplus64(x);
  return {y, dx + gamma(12, s.u) * (y + dx) + kUnderflow};
}

// Good to 2 u; dx moves it by the factor e^dx at most.
ActivationBound exponential_bound(const RowScope& s, double x, double dx) {
  const double y = num::exp64(x), moved = dx == 0 ? 0 : y * std::expm1(std::min(dx, 700.0));
  return {y, moved + gamma(s.declared.own_sums ? 2.1 : 8, s.u) * (y + moved) + kUnderflow};
}

}  // namespace

ActivationBound activation_bound(const RowScope& s, ops::ActivationFunction function, double x, double dx) {
  using F = ops::ActivationFunction;
  switch (function) {  // the compiler asks for a case of each
    case F::silu: return silu_bound(s, x, dx);
    case F::gelu_tanh: return gelu_bound(s, x, dx);
    case F::gelu_erf: return gelu_erf_bound(s, x, dx);
    case F::relu_squared: return relu_squared_bound(s, x, dx);
    case F::sigmoid: return sigmoid_bound(s, x, dx);
    case F::softplus: return softplus_bound(s, x, dx);
    case F::exponential: return exponential_bound(s, x, dx);
    case F::identity: return {x, dx};
    case F::n_functions: break;
  }
  return {x - x, 0};  // no function
}

}  // namespace assay::bounds
