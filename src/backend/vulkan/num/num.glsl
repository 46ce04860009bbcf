// Floats as the contract has them (docs/numerics.md), on devices that do not all compute so: every float operation of the shaders goes through the
// functions here. What the device does right by itself, which the probe finds out (probe/probe.h), is its own instruction; the rest is done in
// integers, or for a fused multiply-add in float64. Each shader is compiled in three kinds, since drivers take every function in wherever it is called:
//
//   plain            fma is the device's, subnormals survive
//   ASSAY_FLOAT64    fma by float64, subnormals survive
//   ASSAY_INTEGERS   fma by integers (kFused), or the device's with integers where a subnormal may be (kFlushes)
//
//   add(a, b)  sub(a, b)  mul(a, b)  fused(a, b, c)  quotient(a, b)  root(x): rounded once to nearest even, subnormals kept
//   add_normal  mul_normal  fused_normal: the same where the caller knows that neither an operand nor the result is subnormal, or that it does not matter
//
// Nothing is contracted: device/spirv.h puts that into the module for every operation.
#ifndef ASSAY_NUM_GLSL
#define ASSAY_NUM_GLSL

#ifdef ASSAY_INTEGERS
layout(constant_id = 0) const uint kFused = 2u;       // 0: the device's fma; 2: by integers
layout(constant_id = 1) const uint kFlushes = 1u;     // 1: subnormal operands and results do not survive
#else
const uint kFlushes = 0u;
#endif
layout(constant_id = 2) const uint kOwnQuotient = 1u; // 1: the device's division is not rounded as it should be: by integers
layout(constant_id = 3) const uint kOwnRoot = 1u;     // 1: the same of its square root
layout(constant_id = 4) const uint kOwnHalves = 1u;   // 1: the same of its conversion of halves to floats

const uint kInfinity = 0x7F800000u, kNaN = 0x7FC00000u, kSmallestNormal = 0x00800000u;

uint magnitude_of(float x) { return floatBitsToUint(x) & 0x7FFFFFFFu; }
bool is_nan(float x) { return magnitude_of(x) > kInfinity; }
bool is_subnormal(float x) { return magnitude_of(x) - 1u < kSmallestNormal - 1u; }
bool may_be_flushed(float result) { return magnitude_of(result) <= kSmallestNormal; }
float negated(float x) { return uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u); }

// ---- Integers of 64 bits: x the low word, y the high one.

uvec2 shifted_left(uvec2 m, uint n) {
  if (n >= 32u) return uvec2(0u, n >= 64u ? 0u : m.x << (n - 32u));
  return n == 0u ? m : uvec2(m.x << n, (m.y << n) | (m.x >> (32u - n)));
}

// What is shifted out stays visible as the lowest bit.
uvec2 shifted_right(uvec2 m, uint n) {
  if (n == 0u) return m;
  if (n >= 64u) return uvec2((m.x | m.y) != 0u ? 1u : 0u, 0u);
  const uvec2 lost = shifted_left(m, 64u - n);
  const uint sticky = (lost.x | lost.y) != 0u ? 1u : 0u;
  if (n >= 32u) return uvec2((m.y >> (n - 32u)) | sticky, 0u);
  return uvec2((m.x >> n) | (m.y << (32u - n)) | sticky, m.y >> n);
}

int highest_bit(uvec2 m) { return m.y != 0u ? 32 + findMSB(m.y) : findMSB(m.x); }

uvec2 sum_of(uvec2 a, uvec2 b) {
  uint carry;
  const uint low = uaddCarry(a.x, b.x, carry);
  return uvec2(low, a.y + b.y + carry);
}
uvec2 difference_of(uvec2 a, uvec2 b) {  // a >= b
  uint borrow;
  const uint low = usubBorrow(a.x, b.x, borrow);
  return uvec2(low, a.y - b.y - borrow);
}
bool is_less(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }

// ---- Floats as sign, integer and exponent.

// |x| = mantissa * 2^exponent, x finite and not 0; the mantissa's highest bit is bit 23.
struct Parts {
  uint mantissa;
  int exponent;
};
Parts parts_of(float x) {
  const uint bits = magnitude_of(x);
  const uint biased = bits >> 23;
  if (biased != 0u) return Parts((bits & 0x7FFFFFu) | 0x800000u, int(biased) - 150);
  const int up = 23 - findMSB(bits);
  return Parts(bits << uint(up), -149 - up);
}

// m * 2^exponent with this sign, rounded to nearest even; m is not 0, and where its lowest bit stands for lost ones it has 26 bits or more.
float rounded(uint sign, uvec2 m, int exponent) {
  const int top = highest_bit(m);
  const int biased = exponent + top + 127;
  if (biased > 254) return uintBitsToFloat(sign | kInfinity);
  int shift = top - 23 + (biased < 1 ? 1 - biased : 0);  // to the last place of the result
  if (shift < 2) {
    m = shifted_left(m, uint(2 - shift));
    shift = 2;
  }
  const uint with_rest = shifted_right(m, uint(shift - 2)).x;  // two bits further: the half and what is below
  const uint rest = with_rest & 3u;
  uint kept = with_rest >> 2;
  if (rest == 3u || (rest == 2u && (kept & 1u) != 0u)) kept += 1u;
  return uintBitsToFloat(sign | (kept + (biased < 1 ? 0u : uint(biased - 1) << 23)));  // a carry runs into the exponent as it should
}

#ifdef ASSAY_INTEGERS
float fused_by_integers(float a, float b, float c) {
  const uint sign_p = (floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u, sign_c = floatBitsToUint(c) & 0x80000000u;
  const uint size_a = magnitude_of(a), size_b = magnitude_of(b), size_c = magnitude_of(c);
  if (max(max(size_a, size_b), size_c) >= kInfinity) {
    if (max(max(size_a, size_b), size_c) > kInfinity) return uintBitsToFloat(kNaN);
    if (size_a < kInfinity && size_b < kInfinity) return c;
    const bool is_wrong = size_a == 0u || size_b == 0u || (size_c == kInfinity && sign_c != sign_p);
    return uintBitsToFloat(is_wrong ? kNaN : sign_p | kInfinity);
  }
  if (size_a == 0u || size_b == 0u) {
    if (size_c != 0u) return c;
    return uintBitsToFloat(sign_p & sign_c);
  }
  // Both with their highest bit at 61, so that a sum has room and what is shifted out lies far below the last place.
  const Parts of_a = parts_of(a), of_b = parts_of(b);
  uvec2 m;
  umulExtended(of_a.mantissa, of_b.mantissa, m.y, m.x);
  const uint up = uint(61 - highest_bit(m));
  m = shifted_left(m, up);
  int exponent = of_a.exponent + of_b.exponent - int(up);
  uint sign = sign_p;
  if (size_c != 0u) {
    const Parts of_c = parts_of(c);
    const uvec2 q = uvec2(0u, of_c.mantissa << 6);
    const int above = of_c.exponent - 38 - exponent;  // c's exponent over the product's
    const uvec2 upper = above > 0 ? q : m, lower = shifted_right(above > 0 ? m : q, uint(abs(above)));
    exponent += max(above, 0);
    if (sign_p == sign_c) {
      m = sum_of(upper, lower);
    } else {
      if (upper == lower) return 0.0;
      const bool turns = is_less(upper, lower);
      m = difference_of(turns ? lower : upper, turns ? upper : lower);
      sign = (above > 0) != turns ? sign_c : sign_p;
    }
  }
  return rounded(sign, m, exponent);
}
#endif

float quotient_by_integers(float a, float b) {
  const uint sign = (floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u;
  const uint size_a = magnitude_of(a), size_b = magnitude_of(b);
  if (size_a > kInfinity || size_b > kInfinity || (size_a == size_b && (size_a == 0u || size_a == kInfinity))) return uintBitsToFloat(kNaN);
  if (size_a == kInfinity || size_b == 0u) return uintBitsToFloat(sign | kInfinity);
  if (size_a == 0u || size_b == kInfinity) return uintBitsToFloat(sign);
  const Parts of_a = parts_of(a), of_b = parts_of(b);
  uint rest = of_a.mantissa, digits = 0u;
  for (int i = 0; i < 28; ++i) {  // 27 or 28 digits, the first or the second is 1
    digits <<= 1;
    if (rest >= of_b.mantissa) {
      rest -= of_b.mantissa;
      digits |= 1u;
    }
    rest <<= 1;
  }
  return rounded(sign, uvec2((digits << 1) | (rest != 0u ? 1u : 0u), 0u), of_a.exponent - of_b.exponent - 28);
}

float root_by_integers(float x) {
  const uint size = magnitude_of(x);
  if (size == 0u) return x;
  if (size > kInfinity || floatBitsToUint(x) != size) return uintBitsToFloat(kNaN);
  if (size == kInfinity) return x;
  const Parts of_x = parts_of(x);
  uint mantissa = of_x.mantissa;
  int exponent = of_x.exponent;
  if ((exponent & 1) != 0) {
    mantissa <<= 1;
    exponent -= 1;
  }
  uint rest = 0u, digits = 0u;  // of the mantissa times 2^28, two bits at a time
  for (int i = 26; i >= 0; --i) {
    rest = (rest << 2) | (i >= 14 ? (mantissa >> uint(2 * (i - 14))) & 3u : 0u);
    const uint next = (digits << 2) | 1u;
    digits <<= 1;
    if (rest >= next) {
      rest -= next;
      digits |= 1u;
    }
  }
  return rounded(0u, uvec2((digits << 1) | (rest != 0u ? 1u : 0u), 0u), (exponent - 28) / 2 - 1);
}

#ifdef ASSAY_FLOAT64
// The product is exact in float64. The sum is rounded to odd, by what it lost: then the last rounding sees on which side of a half it lies.
float fused_by_float64(float a, float b, float c) {
  const double p = double(a) * double(b), q = double(c);
  const double s = p + q;
  const double of_q = s - p;
  const double lost = (p - (s - of_q)) + (q - of_q);
  uvec2 bits = unpackDouble2x32(s);
  if ((bits.x & 1u) == 0u && (lost > 0.0lf || lost < 0.0lf)) {
    if ((lost > 0.0lf) == (s > 0.0lf)) {
      bits.x |= 1u;
    } else {
      bits = difference_of(bits, uvec2(1u, 0u));
    }
  }
  return float(packDouble2x32(bits));
}
#endif

#ifdef ASSAY_INTEGERS
float fused(float a, float b, float c) {
  const float y = fma(a, b, c);
  if (kFused == 0u && kFlushes == 0u) return y;
  const bool is_exact = kFused == 0u && !(is_subnormal(a) || is_subnormal(b) || is_subnormal(c) || may_be_flushed(y));
  return is_exact ? y : fused_by_integers(a, b, c);
}

float add(float a, float b) {
  const float y = a + b;
  if (kFlushes == 0u || !(is_subnormal(a) || is_subnormal(b) || may_be_flushed(y))) return y;
  return fused_by_integers(a, 1.0, b);
}

float mul(float a, float b) {
  const float y = a * b;
  if (kFlushes == 0u || !(is_subnormal(a) || is_subnormal(b) || may_be_flushed(y))) return y;
  return fused_by_integers(a, b, uintBitsToFloat((floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u));  // a zero of the product's sign
}
#else
float add(float a, float b) { return a + b; }
float mul(float a, float b) { return a * b; }
#ifdef ASSAY_FLOAT64
float fused(float a, float b, float c) { return fused_by_float64(a, b, c); }
#else
float fused(float a, float b, float c) { return fma(a, b, c); }
#endif
#endif

float sub(float a, float b) { return add(a, negated(b)); }

float add_normal(float a, float b) { return a + b; }
float mul_normal(float a, float b) { return a * b; }
#ifdef ASSAY_INTEGERS
float fused_normal(float a, float b, float c) { return kFused == 0u ? fma(a, b, c) : fused_by_integers(a, b, c); }
#else
float fused_normal(float a, float b, float c) { return fused(a, b, c); }
#endif

// Not 0 and below 2^exponent. Multiples of 2^-126 stay so under sums and products that are rounded: what is made of operands that are not small is never
// subnormal.
bool is_small(float x, int exponent) { return kFlushes != 0u && magnitude_of(x) - 1u < (uint(exponent + 127) << 23) - 1u; }

#ifndef ASSAY_FLOAT64
#ifdef ASSAY_INTEGERS
bool has_own_fused() { return kFused == 0u; }
#else
bool has_own_fused() { return true; }
#endif

// Of mantissas from 1 to 2: the device's quotient is a few places off at most, a step brings it to its neighbours, and of these three the one that leaves the
// least is the nearest. What the nearest leaves is exact, and no quotient lies in the middle.
float quotient_of_mantissas(float a, float b) {
  const float inverse = 1.0 / b;
  const float near = a * inverse;
  const float nearer = fma(fma(-near, b, a), inverse, near);
  const float below = uintBitsToFloat(floatBitsToUint(nearer) - 1u), above = uintBitsToFloat(floatBitsToUint(nearer) + 1u);
  const float rest = abs(fma(-nearer, b, a)), rest_below = abs(fma(-below, b, a)), rest_above = abs(fma(-above, b, a));
  return rest_below < rest ? below : rest_above < rest ? above : nearer;
}

// Of x from 1 to 4: s + half a place is too small where x - s * s is more than s * place, s - half a place too large where it is at most -s * place: all are
// multiples of place^2.
float root_of_mantissa(float x) {
  const float near = sqrt(x);
  const float nearer = fma(fma(-near, near, x), 0.5 / near, near);
  const float s = clamp(nearer, 1.0, uintBitsToFloat(0x3FFFFFFFu));
  const float rest = fma(-s, s, x), step = s * 1.1920928955078125e-7;  // 2^-23
  return uintBitsToFloat(floatBitsToUint(s) + (rest > step ? 1u : 0u) - (rest <= -step ? 1u : 0u));
}
#endif

float own_quotient(float a, float b) {
#ifndef ASSAY_FLOAT64
  const uint of_a = (floatBitsToUint(a) >> 23) & 0xFFu, of_b = (floatBitsToUint(b) >> 23) & 0xFFu;
  const int up = int(of_a) - int(of_b);
  if (has_own_fused() && of_a - 1u < 254u && of_b - 1u < 254u && up > -125 && up < 127) {
    const float q = quotient_of_mantissas(uintBitsToFloat((floatBitsToUint(a) & 0x7FFFFFu) | 0x3F800000u),
                                          uintBitsToFloat((floatBitsToUint(b) & 0x7FFFFFu) | 0x3F800000u));
    return uintBitsToFloat((floatBitsToUint(q) + (uint(up) << 23)) | ((floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u));
  }
#endif
  return quotient_by_integers(a, b);
}

float own_root(float x) {
#ifndef ASSAY_FLOAT64
  const uint biased = floatBitsToUint(x) >> 23;  // with a sign: not from 1 to 254
  if (has_own_fused() && biased - 1u < 254u) {
    const uint odd = (biased + 1u) & 1u;  // 2^odd * mantissa * 2^(even)
    const float s = root_of_mantissa(uintBitsToFloat((floatBitsToUint(x) & 0x7FFFFFu) | ((127u + odd) << 23)));
    return uintBitsToFloat(floatBitsToUint(s) + (uint((int(biased) - 127 - int(odd)) / 2) << 23));
  }
#endif
  return root_by_integers(x);
}

float quotient(float a, float b) {
  if (kOwnQuotient != 0u) return own_quotient(a, b);
  const float y = a / b;
  if (kFlushes != 0u && (is_subnormal(a) || is_subnormal(b) || may_be_flushed(y))) return quotient_by_integers(a, b);
  return y;
}

float root(float x) {
  if (kOwnRoot != 0u) return own_root(x);
  if (kFlushes != 0u && is_subnormal(x)) return root_by_integers(x);
  return sqrt(x);
}

// a > b, also of subnormals; false where one is a NaN.
bool is_greater(float a, float b) {
  if (kFlushes == 0u) return a > b;
  if (is_nan(a) || is_nan(b)) return false;
  const int bits_a = floatBitsToInt(a), bits_b = floatBitsToInt(b);
  const int at_a = bits_a < 0 ? -(bits_a & 0x7FFFFFFF) : bits_a, at_b = bits_b < 0 ? -(bits_b & 0x7FFFFFFF) : bits_b;
  return at_a > at_b;
}

// ---- Half precision: num/f16.h.

float half_to_float(uint h) {
  if (kOwnHalves == 0u) return unpackHalf2x16(h).x;
  const uint sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 0x1Fu, mantissa = h & 0x3FFu;
  if (exponent == 0x1Fu) return uintBitsToFloat(sign | kInfinity | (mantissa << 13) | (mantissa != 0u ? 0x400000u : 0u));
  if (exponent == 0u) return uintBitsToFloat(sign | floatBitsToUint(float(mantissa) * 5.9604644775390625e-8));  // 2^-24
  return uintBitsToFloat(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

vec2 halves_to_floats(uint word) {
  return kOwnHalves == 0u ? unpackHalf2x16(word) : vec2(half_to_float(word & 0xFFFFu), half_to_float(word >> 16));
}

uint float_to_half(float x) {
  const uint sign = (floatBitsToUint(x) >> 16) & 0x8000u, magnitude = magnitude_of(x);
  if (magnitude > kInfinity) return sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu);
  if (magnitude >= 0x47800000u) return sign | 0x7C00u;
  if (magnitude < 0x38800000u) {  // a subnormal operand is far below half of the last place: flushed or not
    const float sum = uintBitsToFloat(magnitude) + 0.5;
    return sign | (floatBitsToUint(sum) - 0x3F000000u);
  }
  const uint odd = (magnitude >> 13) & 1u;
  return sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13);
}

// ---- Transcendental functions.

const float kRoundMagic = 12582912.0;  // 1.5 * 2^23
const uint kExponential[6] = uint[](0x3C091FE3u, 0x3D2AAC8Bu, 0x3E2AAA45u, 0x3EFFFFFEu, 0x3F800000u, 0x3F800000u);  // the highest power first
const uint kTanh[4] = uint[](0x3CA92B6Cu, 0xBD5C2224u, 0x3E0883B4u, 0xBEAAAA9Au);
#include "num/functions.glsl"

#endif
