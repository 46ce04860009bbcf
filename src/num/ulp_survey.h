// For tests: how far a binary32 function is from the true one, over many inputs. The truth comes from libm in double,
// whose own error is below 2^-28 of an ulp here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace assay::num {

struct Survey {
  double ulp_max = 0;  // in units of the last place of the true value, which is never finer than 2^-149
  float worst = 0;     // where
  int64_t n_inputs = 0;
  bool specials_agree = true;  // NaN and infinity where, and only where, the truth rounds to them
};

inline double ulp_at(double truth) {
  const int exponent = truth == 0 ? -126 : std::ilogb(truth);
  return std::ldexp(1.0, (exponent < -126 ? -126 : exponent) - 23);
}

// Inputs: every stride-th bit pattern whose value is within low..high.
template <class Ours, class Truth>
Survey survey(uint64_t stride, float low, float high, Ours ours, Truth truth) {
  Survey result;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += stride) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    ++result.n_inputs;
    const float y = ours(x);
    const double t = truth(static_cast<double>(x));
    const auto rounded = static_cast<float>(t);
    if (std::isnan(y) || std::isnan(t) || std::isinf(rounded)) {
      if (std::isnan(y) != std::isnan(t) || (std::isinf(rounded) && y != rounded)) result.specials_agree = false;
      continue;
    }
    const double error = std::fabs(static_cast<double>(y) - t) / ulp_at(t);
    if (error > result.ulp_max) {
      result.ulp_max = error;
      result.worst = x;
    }
  }
  return result;
}

}  // namespace assay::num
