// Q8_0: 32 weights of 8 bits, one half-precision scale. Also a type of the KV cache.
#pragma once

#include "quant/encode.h"

namespace assay::quant {

struct BlockQ8_0 {
  static constexpr bool kHasMin = false;
  static constexpr int kMaxWeight = 128;
  uint16_t d;
  int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

ASSAY_FN BlockScales scales(const BlockQ8_0& b) noexcept { return {num::half_to_float(b.d), 0}; }

ASSAY_FN void unpack(const BlockQ8_0& b, Integers32& n) noexcept {
  for (int j = 0; j < 32; ++j) n.w[j] = b.q[j];
}

// amax = max |x|. d = amax / 127, inverse = 1 / d, q = x * inverse rounded to nearest, halves away from zero; d is
// stored rounded to half. amax < 2^-100: d = 0, q = 0. A NaN or infinity: d = NaN, q = 0, so that poison stays visible.
ASSAY_FN BlockQ8_0 encode_q8_0(const float* x) noexcept {
  BlockQ8_0 b{};
  const uint32_t amax_bits = magnitude_bits_max(x, 32);
  if (amax_bits >= 0x7F800000u) {
    b.d = 0x7E00u;
    return b;
  }
  const float amax = std::bit_cast<float>(amax_bits);
  if (amax < 0x1p-100f) return b;
  const float d = amax / 127;
  const float inverse = 1 / d;
  b.d = num::float_to_half(d);
  for (int j = 0; j < 32; ++j) {
    const float scaled = x[j] * inverse;
    b.q[j] = static_cast<int8_t>(scaled < 0 ? -round_half_up(-scaled) : round_half_up(scaled));
  }
  return b;
}

}  // namespace assay::quant
