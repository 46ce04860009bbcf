// exp and log in binary64, for what decides a token outside the kernels: sampling, log-sum-exp. Plain multiplications and additions in a
// fixed order, so that every machine has the same bits; within 1 ulp of the true value.
// Source: Cody and Waite's reduction, Taylor coefficients 1/n!, and log m = 2 artanh((m - 1) / (m + 1)).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace assay::num {

inline constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // 41 bits of ln 2: exact times any exponent
inline constexpr double kLn2Low = 0x1.ef35793c76730p-45;  // the rest

inline double exp64(double x) noexcept {
  if (!(x > -746.0)) return x != x ? x : 0.0;
  if (x > 710.0) return std::numeric_limits<double>::infinity();
  constexpr double kShift = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  const double k = (x * 0x1.71547652b82fep0 + kShift) - kShift;
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= 0.347
  constexpr double kInverseFactorial[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0,
                                          1.0 / 40320.0,      1.0 / 5040.0,      1.0 / 720.0,      1.0 / 120.0,     1.0 / 24.0,
                                          1.0 / 6.0,          0.5};
  double tail = kInverseFactorial[0];
  for (int i = 1; i < 12; ++i) tail = tail * r + kInverseFactorial[i];
  const double y = 1.0 + (r + r * r * tail);
  // 2^k in two halves, so that results below the normal range are rounded once, at the end.
  const int64_t exponent = static_cast<int64_t>(k);
  const int64_t half = exponent / 2;
  const double a = std::bit_cast<double>(static_cast<uint64_t>(half + 1023) << 52);
  const double b = std::bit_cast<double>(static_cast<uint64_t>(exponent - half + 1023) << 52);
  return y * a * b;
}

inline double log64(double x) noexcept {
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  if (!(x > 0.0)) return std::numeric_limits<double>::quiet_NaN();
  if (x > std::numeric_limits<double>::max()) return x;
  int64_t exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent += 1;
  }
  const double f = m - 1.0;  // exact
  const double s = f / (2.0 + f);
  const double z = s * s;  // <= 0.0295
  double series = 1.0 / 25.0;
  for (int n = 23; n >= 3; n -= 2) series = series * z + 1.0 / static_cast<double>(n);
  // log m = 2s + 2s * z * series, written from f so that its leading term is exact: 2s = f - f * s.
  const double k = static_cast<double>(exponent);
  const double correction = s * (2.0 * z * series - f);
  return k * kLn2High + (f + (k * kLn2Low + correction));
}

}  // namespace assay::num
