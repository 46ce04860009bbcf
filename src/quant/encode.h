// What the encoders share. They give the same bits as the Python package `gguf`, except that blocks below 2^-100 become
// zero.
#pragma once

#include <bit>

#include "quant/block.h"

namespace assay::quant {

// The largest |x| as bits; at or above 0x7F800000 where an infinity or NaN is among them.
ASSAY_FN uint32_t magnitude_bits_max(const float* x, int n) noexcept {
  uint32_t bits_max = 0;
  for (int j = 0; j < n; ++j) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[j]) & 0x7FFFFFFFu;
    bits_max = bits > bits_max ? bits : bits_max;
  }
  return bits_max;
}

// The first element whose magnitude is largest, with its sign.
ASSAY_FN float farthest_32(const float* x) noexcept {
  float farthest = x[0];
  for (int j = 1; j < 32; ++j) {
    const float a = x[j] < 0 ? -x[j] : x[j], b = farthest < 0 ? -farthest : farthest;
    if (a > b) farthest = x[j];
  }
  return farthest;
}

struct Range {
  float min, max;
};
ASSAY_FN Range range_32(const float* x) noexcept {
  Range range{x[0], x[0]};
  for (int j = 1; j < 32; ++j) {
    if (x[j] < range.min) range.min = x[j];
    if (x[j] > range.max) range.max = x[j];
  }
  return range;
}

ASSAY_FN float inverse_or_zero(float d) noexcept {
  const float magnitude = d < 0 ? -d : d;
  return magnitude < 0x1p-104f ? 0.0f : 1 / d;
}

// Toward zero, into 0..max; a NaN gives 0.
ASSAY_FN int truncate_clamped(float x, int max) noexcept {
  if (!(x > 0)) return 0;
  return x < static_cast<float>(max) ? static_cast<int>(x) : max;
}

// x >= 0 and small: to the nearest integer, halves up. The difference is exact, where x + 0.5 would round.
ASSAY_FN int round_half_up(float x) noexcept {
  const int whole = static_cast<int>(x);
  return x - static_cast<float>(whole) >= 0.5f ? whole + 1 : whole;
}

ASSAY_FN void pack_5_bits(const uint8_t* levels, uint8_t* nibbles, uint8_t* high_bits) noexcept {
  for (int j = 0; j < 4; ++j) high_bits[j] = 0;
  for (int j = 0; j < 32; ++j)
    high_bits[j / 8] = static_cast<uint8_t>(high_bits[j / 8] | ((levels[j] >> 4) << (j % 8)));
  for (int j = 0; j < 16; ++j) nibbles[j] = static_cast<uint8_t>((levels[j] & 15) | ((levels[j + 16] & 15) << 4));
}

}  // namespace assay::quant
