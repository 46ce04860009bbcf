// The activation functions (ops/rows/activation.h) and the soft bound sixteen at a time: num/activations.h and
// num/math.h line by line, so with their bits.
#pragma once

#include "backend/cpu/rows/math_simd.h"
#include "backend/cpu/sets/simd.h"
#include "num/activations.h"
#include "ops/rows/activation.h"

namespace assay::backend::cpu {
namespace {

static inline Vec sigmoid(Vec x) noexcept { return div(splat(1.0f), add(splat(1.0f), exp(negate(x)))); }

static inline Vec log1p_unit(Vec u) noexcept {
  const Vec s = div(u, add(splat(2.0f), u));
  const Vec z = mul(s, s);
  Vec p = fma(splat(2.0f / 15.0f), z, splat(2.0f / 13.0f));
  for (const float c : {2.0f / 11.0f, 2.0f / 9.0f, 2.0f / 7.0f, 2.0f / 5.0f, 2.0f / 3.0f}) p = fma(p, z, splat(c));
  return fma(mul(s, z), p, add(s, s));
}

static inline Vec softplus(Vec x) noexcept {
  const Vec zero = splat(0.0f);
  const Vec a = where_greater(zero, x, x, negate(x));
  return add(where_greater(x, zero, x, sub(x, x)), log1p_unit(exp(a)));
}

static inline Vec normal_tail(Vec x) noexcept {
  Vec a = where_greater(splat(0.0f), x, negate(x), x);
  a = smaller(splat(num::kTailMax), a);
  const Vec t = div(splat(1.0f), fma(a, splat(0x1.6a09e6p-2f), splat(1.0f)));
  const Vec half = mul(splat(0.5f), a);
  const Vec square = mul(half, a), lost = fma(half, a, negate(square));
  Vec g = fma(splat(num::kTail[0]), t, splat(num::kTail[1]));
  for (int i = 2; i < num::kNTail; ++i) g = fma(g, t, splat(num::kTail[i]));
  const Vec e = exp(negate(square));
  return mul(splat(0.5f), mul(mul(t, g), fma(e, negate(lost), e)));
}

static inline Vec gelu_erf(Vec x) noexcept {
  const Vec tail = normal_tail(x);
  return where_greater(x, splat(0.0f), fma(x, negate(tail), x), mul(x, tail));
}

static inline Vec relu_squared(Vec x) noexcept {
  const Vec zero = splat(0.0f), r = where_greater(x, zero, x, mul(x, zero));
  return mul(r, r);
}

static inline Vec tanh(Vec x) noexcept {
  const Vec a = without_sign(x), z = mul(a, a), one = splat(1.0f);
  Vec p = fma(splat(num::kTanh11), z, splat(num::kTanh9));
  p = fma(p, z, splat(num::kTanh7));
  p = fma(p, z, splat(num::kTanh5));
  p = fma(p, z, splat(num::kTanh3));
  const Vec small = fma(a, mul(z, p), a);
  const Vec large = sub(one, div(splat(2.0f), add(exp(add(a, a)), one)));
  return with_sign_of(where_greater(splat(num::kTanhSmall), a, small, large), x);
}

static inline Vec softcap(Vec x, Vec limit) noexcept { return mul(limit, tanh(div(x, limit))); }

template <ops::ActivationFunction function>
static inline Vec activate(Vec x) noexcept {
  using F = ops::ActivationFunction;
  if constexpr (function == F::silu)
    return silu(x);
  else if constexpr (function == F::gelu_tanh)
    return gelu_tanh(x);
  else if constexpr (function == F::gelu_erf)
    return gelu_erf(x);
  else if constexpr (function == F::relu_squared)
    return relu_squared(x);
  else if constexpr (function == F::sigmoid)
    return sigmoid(x);
  else if constexpr (function == F::softplus)
    return softplus(x);
  else if constexpr (function == F::exponential)
    return exp(x);
  else {
    static_assert(function == F::identity, "an activation without its vector form");
    return x;
  }
}

}  // namespace
}  // namespace assay::backend::cpu
