// num/math.h and num/activations.h, line by line. Included by num.glsl, and once more by seen.glsl with other names of all that is rounded and made here.

float rint_small(float x) { return sub(add(x, kRoundMagic), kRoundMagic); }

float exponential(float x) {
  x = is_greater(x, 89.0) ? 89.0 : x;
  x = is_greater(-104.0, x) ? -104.0 : x;
  const float shifted = fused(x, uintBitsToFloat(0x3FB8AA3Bu), kRoundMagic);  // log2 e
  const float n = sub(shifted, kRoundMagic);
  const float r = fused(n, uintBitsToFloat(0x3102E308u), fused(n, uintBitsToFloat(0xBF317218u), x));  // -ln 2 in two parts
  float p = uintBitsToFloat(0x3AB50D39u);
  for (int i = 0; i < 6; ++i) p = fused(p, r, uintBitsToFloat(kExponential[i]));
  const uint count = floatBitsToUint(shifted) - floatBitsToUint(kRoundMagic);
  const uint half_count = uint(int(count) >> 1);
  return mul(mul(p, uintBitsToFloat((half_count + 127u) << 23)), uintBitsToFloat((count - half_count + 127u) << 23));
}

float tanh_of(float x) {
  const uint bits = floatBitsToUint(x);
  const float a = uintBitsToFloat(bits & 0x7FFFFFFFu);
  const float z = mul(a, a);
  float p = uintBitsToFloat(0xBBBB560Du);
  for (int i = 0; i < 4; ++i) p = fused(p, z, uintBitsToFloat(kTanh[i]));
  const float small = fused(a, mul(z, p), a);
  const float large = sub(1.0, quotient(2.0, add(exponential(add(a, a)), 1.0)));
  return uintBitsToFloat(floatBitsToUint(is_greater(0.625, a) ? small : large) | (bits & 0x80000000u));
}

float softcap(float x, float limit) { return mul(limit, tanh_of(quotient(x, limit))); }
float silu(float x) { return quotient(x, add(1.0, exponential(negated(x)))); }
float gelu_twice_u(float x) { return mul(x, fused(mul(x, x), uintBitsToFloat(0x3D922279u), uintBitsToFloat(0x3FCC422Au))); }
float gelu_tanh(float x) { return quotient(x, add(1.0, exponential(negated(gelu_twice_u(x))))); }
float sigmoid(float x) { return quotient(1.0, add(1.0, exponential(negated(x)))); }
float relu_squared(float x) {  // x * 0 is a NaN for one and for -infinity, and squared +0 else
  if (is_greater(x, 0.0)) return mul(x, x);
  return uintBitsToFloat(magnitude_of(x) >= kInfinity ? kNaN : 0u);
}
