// For tests: the stated errors of num/math.h, as in the table of docs/numerics.md.
#pragma once

#include "num/math.h"
#include "num/ulp_survey.h"

namespace assay::num {

struct Bound {
  const char* name;
  float low, high;  // inputs
  double ulp;
  float (*ours)(float);
  double (*truth)(double);
};

inline double silu_truth(double x) { return x / (1 + std::exp(-x)); }
inline double gelu_tanh_truth(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

inline constexpr float kAll = std::numeric_limits<float>::infinity();
inline constexpr Bound kBounds[] = {
    {"exp", -kAll, kAll, 0.9, exp, [](double x) { return std::exp(x); }},
    {"tanh", -kAll, kAll, 1.4, tanh, [](double x) { return std::tanh(x); }},
    {"silu, x >= -87", -87, kAll, 2.4, silu, silu_truth},
    {"gelu_tanh, x >= 0", 0, kAll, 1.9, gelu_tanh, gelu_tanh_truth},
    {"gelu_tanh, -1 <= x < 0", -1, -0.0f, 2.7, gelu_tanh, gelu_tanh_truth},
    {"gelu_tanh, -5 <= x < -1", -5, -1, 32.0, gelu_tanh, gelu_tanh_truth},
};

}  // namespace assay::num
