// Transcendental functions of binary32 (numerics contract, section 4): one source for host and device, no libm and no
// device intrinsics. Only + - * /, fma, comparisons, integer adds and shifts, each with one possible result, so that
// vector versions that follow the same lines have the same bits. Errors in ulp, measured over all inputs, stand in
// docs/numerics.md.
#pragma once

#include <bit>
#include <cstdint>

#include "num/device.h"
#include "num/lanes.h"

namespace assay::num {

// e^x = 2^n * e^r with n = rint(x / ln 2), r = x - n * ln 2 in two steps, e^r by a polynomial of degree 6.
// Gradual underflow; below -103.98 and at -infinity +0, above 88.7228 infinity; a NaN gives a NaN.
inline constexpr float kExpInputMax = 89.0f, kExpInputMin = -104.0f;  // beyond these the result stays infinity and 0
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e43p-1f, kLn2Low = -0x1.05c61p-29f;
inline constexpr float kRoundMagic = 0x1.8p23f;  // its ulp is 1: after adding it the low bits are the rounded integer
inline constexpr float kExp2 = 0x1.fffffcp-2f, kExp3 = 0x1.55548ap-3f, kExp4 = 0x1.555916p-5f, kExp5 = 0x1.123fc6p-7f,
                       kExp6 = 0x1.6a1a72p-10f;

// e^r, and x / ln 2 + kRoundMagic, whose low bits are n.
struct ExpParts {
  float p, shifted;
};
ASSAY_FN ExpParts exp_parts(float x) noexcept {
  const float shifted = fma(x, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  float p = fma(kExp6, r, kExp5);
  p = fma(p, r, kExp4);
  p = fma(p, r, kExp3);
  p = fma(p, r, kExp2);
  p = fma(p, r, 1.0f);
  return {fma(p, r, 1.0f), shifted};
}

ASSAY_FN float exp(float x) noexcept {
  x = kExpInputMax < x ? kExpInputMax : x;  // as written a NaN passes: minps(max, x), then maxps(min, x)
  x = kExpInputMin > x ? kExpInputMin : x;
  const ExpParts e = exp_parts(x);
  // 2^n in two halves: both are normal numbers and only the last product rounds. A NaN leaves any n; its product stays
  // a NaN.
  const uint32_t count = std::bit_cast<uint32_t>(e.shifted) - std::bit_cast<uint32_t>(kRoundMagic);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(count) >> 1);
  const float scale_1 = std::bit_cast<float>((half + 127) << 23),
              scale_2 = std::bit_cast<float>((count - half + 127) << 23);
  return (e.p * scale_1) * scale_2;
}

// The bits of exp() for |x| <= kExpNearMax: the result is a normal number, so n is added to the exponent of e^r and
// nothing rounds.
inline constexpr float kExpNearMax = 86.0f;
ASSAY_FN float exp_near(float x) noexcept {
  const ExpParts e = exp_parts(x);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(e.p) + (std::bit_cast<uint32_t>(e.shifted) << 23));
}

// The bits of exp() for x <= 0; a NaN gives +0. e^r is made 2^64 times as large, which changes no rounding on the way:
// then n can be added to the exponent whatever it is, and the last product alone rounds where the result is below the
// smallest normal number.
ASSAY_FN float exp_not_above_0(float x) noexcept {
  constexpr float kUp = 0x1p64f, kDown = 0x1p-64f;
  x = x > kExpInputMin ? x : kExpInputMin;
  const float shifted = fma(x, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  float p = fma(kExp6 * kUp, r, kExp5 * kUp);
  p = fma(p, r, kExp4 * kUp);
  p = fma(p, r, kExp3 * kUp);
  p = fma(p, r, kExp2 * kUp);
  p = fma(p, r, kUp);
  p = fma(p, r, kUp);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23)) * kDown;
}

// x * sigmoid(x). Below -88.7228 the quotient is -0; at -infinity it is a NaN, so that poison stays visible.
ASSAY_FN float silu(float x) noexcept { return x / (1.0f + exp(-x)); }

// GELU in its tanh form, 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), written as x / (1 + e^(-2u)).
// Source: Hendrycks and Gimpel 2016, arXiv:1606.08415.
inline constexpr float kGelu1 = 0x1.988454p+0f;  // 2 sqrt(2 / pi)
inline constexpr float kGelu3 = 0x1.2444f2p-4f;  // 2 sqrt(2 / pi) * 0.044715

ASSAY_FN float gelu_twice_u(float x) noexcept { return x * fma(x * x, kGelu3, kGelu1); }
ASSAY_FN float gelu_tanh(float x) noexcept { return x / (1.0f + exp(-gelu_twice_u(x))); }

// Odd: computed on |x|, the sign put back (so -0 stays). Below 0.625 a polynomial x + x z P(z), z = x^2; else 1 - 2 /
// (e^2x + 1).
inline constexpr float kTanhSmall = 0.625f;
inline constexpr float kTanh3 = -0x1.555534p-2f, kTanh5 = 0x1.110768p-3f, kTanh7 = -0x1.b84448p-5f,
                       kTanh9 = 0x1.5256d8p-6f, kTanh11 = -0x1.76ac1ap-8f;

ASSAY_FN float tanh(float x) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float a = std::bit_cast<float>(bits & 0x7FFFFFFFu);
  const float z = a * a;
  float p = fma(kTanh11, z, kTanh9);
  p = fma(p, z, kTanh7);
  p = fma(p, z, kTanh5);
  p = fma(p, z, kTanh3);
  const float small = fma(a, z * p, a);
  const float large = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  const float magnitude = a < kTanhSmall ? small : large;  // a NaN takes the second way and stays one
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (bits & 0x80000000u));
}

// limit * tanh(x / limit): a soft bound on logits and attention scores.
ASSAY_FN float softcap(float x, float limit) noexcept { return limit * tanh(x / limit); }

}  // namespace assay::num
