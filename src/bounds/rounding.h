// The arithmetic of bounds: unit roundoffs, gamma(n), and the verdict on one element.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "trace/dump.h"

namespace assay::bounds {

inline constexpr double kUnitDouble = 0x1p-53;
inline constexpr double kUnitHalf = 0x1p-11;  // f16: 11 bits
inline constexpr double kTinyHalf = 0x1p-25;  // half the distance of f16's subnormals
inline constexpr double kUnitBfloat = 0x1p-8;

// The declared unit roundoff, a little enlarged for the roundings of the float64 reference itself, which make a few of
// each formula.
inline double unit(const trace::Declared& declared) noexcept { return declared.unit_roundoff + 2 * kUnitDouble; }

// n roundings of relative size u: |product of (1 + d_i) - 1| <= gamma (Higham, lemma 3.1).
inline double gamma(double n, double u) noexcept {
  const double nu = n * u;
  return nu < 0.5 ? nu / (1 - nu) : std::numeric_limits<double>::infinity();
}

// What underflow to zero or to subnormals can lose in any op: far below every number that a model computes with.
inline double tiny(const trace::Declared& declared) noexcept {
  return declared.unit_roundoff > 0x1p-40 ? 0x1p-100 : 0x1p-900;
}

// |found - expected| / bound: above 1 is wrong. A number that is found where none is expected, or the other way round,
// is infinitely wrong; where the bound is infinite or the expected value is none, everything that is no number is
// right.
inline double excess(double found, double expected, double bound) noexcept {
  if (std::isfinite(found) && std::isfinite(expected)) {
    const double error = std::fabs(found - expected);
    if (error <= bound || std::isnan(bound)) return bound > 0 && std::isfinite(bound) ? error / bound : 0;
    return bound > 0 ? error / bound : std::numeric_limits<double>::infinity();
  }
  if (std::isfinite(found)) return std::numeric_limits<double>::infinity();  // poison that disappeared
  const bool overflow = std::fabs(expected) + bound > static_cast<double>(std::numeric_limits<float>::max());
  return !std::isfinite(expected) || !std::isfinite(bound) || overflow ? 0 : std::numeric_limits<double>::infinity();
}

}  // namespace assay::bounds
