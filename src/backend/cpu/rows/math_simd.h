// num/math.h sixteen at a time, line by line, so with its bits. Written over Vec (simd.h).
#pragma once

#include "backend/cpu/sets/simd.h"
#include "num/math.h"

namespace assay::backend::cpu {
namespace {

static inline Vec exp(Vec x) noexcept {
  x = smaller(splat(num::kExpInputMax), x);
  x = greater(splat(num::kExpInputMin), x);
  const Vec shifted = fma(x, splat(num::kLog2E), splat(num::kRoundMagic));
  const Vec n = sub(shifted, splat(num::kRoundMagic));
  const Vec r = fma(n, splat(-num::kLn2Low), fma(n, splat(-num::kLn2High), x));
  Vec p = fma(splat(num::kExp6), r, splat(num::kExp5));
  p = fma(p, r, splat(num::kExp4));
  p = fma(p, r, splat(num::kExp3));
  p = fma(p, r, splat(num::kExp2));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  return times_power_of_two(p, n, shifted);
}

static inline Vec silu(Vec x) noexcept { return div(x, add(splat(1.0f), exp(negate(x)))); }

static inline Vec gelu_tanh(Vec x) noexcept {
  const Vec twice_u = mul(x, fma(mul(x, x), splat(num::kGelu3), splat(num::kGelu1)));
  return div(x, add(splat(1.0f), exp(negate(twice_u))));
}

}  // namespace
}  // namespace assay::backend::cpu
