// More transcendental functions of binary32, by the rules of math.h: what activation functions are made of beside exp
// and tanh.
#pragma once

#include "num/math.h"

namespace assay::num {

ASSAY_FN float sigmoid(float x) noexcept { return 1.0f / (1.0f + exp(-x)); }

// log(1 + u) for 0 <= u <= 1: 2 atanh(s), s = u / (2 + u) <= 1/3, by its series.
ASSAY_FN float log1p_unit(float u) noexcept {
  const float s = u / (2.0f + u);
  const float z = s * s;
  float p = fma(2.0f / 15.0f, z, 2.0f / 13.0f);
  p = fma(p, z, 2.0f / 11.0f);
  p = fma(p, z, 2.0f / 9.0f);
  p = fma(p, z, 2.0f / 7.0f);
  p = fma(p, z, 2.0f / 5.0f);
  p = fma(p, z, 2.0f / 3.0f);
  return fma(s * z, p, s + s);
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
ASSAY_FN float softplus(float x) noexcept {
  const float a = x < 0.0f ? x : -x;
  return (x > 0.0f ? x : x - x) + log1p_unit(exp(a));
}

// Half of erfc(|x| / sqrt 2), the normal distribution's tail: e^(-x^2 / 2) t g(t) / 2 with t = 1 / (1 + |x| / sqrt 8)
// and a polynomial g. What x^2 / 2 loses by rounding is put back as a factor.
inline constexpr int kNTail = 11;
ASSAY_TABLE float kTail[kNTail] = {0x1.124f38p-5f,  -0x1.6cdd46p-3f, 0x1.662908p-2f, -0x1.f5f412p-3f,
                                   -0x1.f74f2cp-5f, 0x1.de9300p-5f,  0x1.78b584p-5f, 0x1.80b006p-3f,
                                   0x1.f56866p-3f,  0x1.210edap-2f,  0x1.20db84p-2f};  // g, the highest power first
inline constexpr float kTailMax = 20.0f;                                               // the tail is 0 from here on
ASSAY_FN float normal_tail(float x) noexcept {
  float a = x < 0.0f ? -x : x;
  a = kTailMax < a ? kTailMax : a;  // as written a NaN passes
  const float t = 1.0f / fma(a, 0x1.6a09e6p-2f, 1.0f);
  const float half = 0.5f * a;
  const float square = half * a, lost = fma(half, a, -square);
  float g = fma(kTail[0], t, kTail[1]);
  for (int i = 2; i < kNTail; ++i) g = fma(g, t, kTail[i]);
  const float e = exp(-square);
  return 0.5f * ((t * g) * fma(e, -lost, e));
}

// x times the normal distribution function: GELU as it is defined. Source: Hendrycks and Gimpel 2016, arXiv:1606.08415.
ASSAY_FN float gelu_erf(float x) noexcept {
  const float tail = normal_tail(x);
  return x > 0.0f ? fma(x, -tail, x) : x * tail;
}

ASSAY_FN float relu_squared(float x) noexcept {
  const float r = x > 0.0f ? x : x * 0.0f;  // a NaN stays one
  return r * r;
}

}  // namespace assay::num
