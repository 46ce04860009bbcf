// Half precision and bfloat16 to and from binary32: exact widening, narrowing with round to nearest even, subnormals
// kept. Plain integer code, so that every host and device has the same bits; backends use their instruction for the
// same function.
#pragma once

#include <bit>
#include <cstdint>

#include "num/device.h"

namespace assay::num {

ASSAY_FN float half_to_float(uint16_t h) noexcept {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1Fu;
  const uint32_t mantissa = h & 0x3FFu;
  if (exponent == 0x1F) {  // infinity; a NaN becomes quiet, as vcvtph2ps makes it
    return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u));
  }
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

ASSAY_FN uint16_t float_to_half(float x) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65536 and above, infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: the sum with 0.5 leaves rint(|x| * 2^24) in the low bits, rounded once
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;  // ties to even; a carry runs into the exponent as it should
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

ASSAY_FN float bf16_to_float(uint16_t b) noexcept { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

ASSAY_FN uint16_t float_to_bf16(float x) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace assay::num
