// The operations of num.glsl without what a device that flushes subnormals needs for them: *_seen is right, or says so in `is_risky`. A kernel computes with
// these first, and where one said so again with the others: in one place, since drivers write a page of instructions wherever an operation in integers stands,
// and pages that are jumped over cost as well. Where nothing flushes they are the others.
//
//   #include "num/seen_names.glsl"       body of the kernel, all names mean *_seen
//   #include "num/plain_names.glsl"      the same body again
#ifndef ASSAY_SEEN_GLSL
#define ASSAY_SEEN_GLSL

bool is_risky = false;
shared uint n_risky;

// Whether any invocation of the workgroup said so; by all of them.
bool has_risky() {
#ifdef ASSAY_INTEGERS
  if (kFlushes == 0u || kFused != 0u) return false;  // nothing was seen
#else
  return false;
#endif
  if (gl_LocalInvocationIndex == 0u) n_risky = 0u;
  barrier();
  if (is_risky) n_risky = 1u;
  barrier();
  return n_risky != 0u;
}

#ifdef ASSAY_INTEGERS
bool is_zero(float x) { return magnitude_of(x) == 0u; }
void see(bool risk) { is_risky = is_risky || risk; }

float fused_seen(float a, float b, float c) {
  if (kFused != 0u) return fused_by_integers(a, b, c);
  const float y = fma(a, b, c);
  if (kFlushes != 0u) see(is_subnormal(a) || is_subnormal(b) || is_subnormal(c) || (may_be_flushed(y) && !is_zero(a) && !is_zero(b)));
  return y;
}
float add_seen(float a, float b) {
  if (kFused != 0u) return add(a, b);
  const float y = a + b;
  const bool cancels = (floatBitsToUint(a) ^ floatBitsToUint(b)) == 0x80000000u || (is_zero(a) && is_zero(b));
  if (kFlushes != 0u) see(is_subnormal(a) || is_subnormal(b) || (may_be_flushed(y) && !cancels));
  return y;
}
float mul_seen(float a, float b) {
  if (kFused != 0u) return mul(a, b);
  const float y = a * b;
  if (kFlushes != 0u) see(is_subnormal(a) || is_subnormal(b) || (may_be_flushed(y) && !is_zero(a) && !is_zero(b)));
  return y;
}
float quotient_seen(float a, float b) {
  if (kFused != 0u || kFlushes == 0u) return quotient(a, b);
  const uint of_a = (floatBitsToUint(a) >> 23) & 0xFFu, of_b = (floatBitsToUint(b) >> 23) & 0xFFu;
  const int up = int(of_a) - int(of_b);
  const bool is_usual = of_a - 1u < 254u && of_b - 1u < 254u && up > -125 && up < 127;
  see(!is_usual && !(is_zero(a) && of_b - 1u < 254u));
  const uint sign = (floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u;
  if (!is_usual) return uintBitsToFloat(sign);
  const float q = quotient_of_mantissas(uintBitsToFloat((floatBitsToUint(a) & 0x7FFFFFu) | 0x3F800000u),
                                        uintBitsToFloat((floatBitsToUint(b) & 0x7FFFFFu) | 0x3F800000u));
  return uintBitsToFloat((floatBitsToUint(q) + (uint(up) << 23)) | sign);
}
float root_seen(float x) {
  if (kFused != 0u || kFlushes == 0u) return root(x);
  const uint biased = floatBitsToUint(x) >> 23;
  see(biased - 1u >= 254u);
  const uint odd = (biased + 1u) & 1u;
  const float s = root_of_mantissa(uintBitsToFloat((floatBitsToUint(x) & 0x7FFFFFu) | ((127u + odd) << 23)));
  return uintBitsToFloat(floatBitsToUint(s) + (uint((int(biased) - 127 - int(odd)) / 2) << 23));
}
#else
float fused_seen(float a, float b, float c) { return fused(a, b, c); }
float add_seen(float a, float b) { return add(a, b); }
float mul_seen(float a, float b) { return mul(a, b); }
float quotient_seen(float a, float b) { return quotient(a, b); }
float root_seen(float x) { return root(x); }
#endif
float sub_seen(float a, float b) { return add_seen(a, negated(b)); }

#include "num/seen_names.glsl"
#include "num/functions.glsl"
#include "num/plain_names.glsl"

#endif
