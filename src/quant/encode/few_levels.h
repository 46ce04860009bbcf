// Formats with few scales or few levels: TQ1_0 and TQ2_0, whose best scale is found exactly, and MXFP4, whose scale is
// a power of two.
#pragma once

#include <algorithm>

#include "quant/encode/gain.h"
#include "quant/mxfp4.h"
#include "quant/tq1_0.h"
#include "quant/tq2_0.h"

namespace assay::quant::encode {

// The scale d >= 0 for which sum w (x - d t)^2, t in {-1, 0, 1}, is smallest. Whatever d is, the elements that do not
// become 0 are those of largest magnitude, so the best of 256 prefixes is the best of all: (sum w |x|)^2 / sum w, d =
// sum w |x| / sum w.
ASSAY_FN float ternary_scale(const Values& v) noexcept {
  struct Item {
    float magnitude, weight;
    int at;
  } items[256];
  for (int j = 0; j < 256; ++j) items[j] = {v.x[j] < 0 ? -v.x[j] : v.x[j], v.weight(j), j};
  std::sort(items, items + 256, [](const Item& a, const Item& b) {
    return a.magnitude != b.magnitude ? a.magnitude > b.magnitude : a.at < b.at;
  });
  float sum = 0, weight = 0, best = 0, scale = 0;
  for (const Item& item : items) {
    sum += item.weight * item.magnitude;
    weight += item.weight;
    if (weight > 0 && sum * (sum / weight) > best) {
      best = sum * (sum / weight);
      scale = sum / weight;
    }
  }
  return num::half_to_float(num::float_to_half(scale < kHalfMax ? scale : kHalfMax));
}

// 0, 1, 2 for -1, 0, 1, and the scale to be stored with them.
ASSAY_FN uint16_t ternary_digits(const Values& v, uint8_t* digits) noexcept {
  const float scale = ternary_scale(v), inverse = inverse_of(scale);
  float xx = 0, xt = 0;
  for (int j = 0; j < 256; ++j) {
    const float t = nearest_one<Steps<-1, 1>>(v.x[j] * inverse);
    digits[j] = static_cast<uint8_t>(static_cast<int>(t) + 1);
    xx += v.x[j] * v.x[j];
    xt += v.x[j] * t;
  }
  const float stored = regains<Steps<-1, 1>>(v) ? scale * gain_of_products(xx, scale * xt) : scale;
  return num::float_to_half(stored < kHalfMax ? stored : kHalfMax);
}

// Five digits of base 3 as a fraction of 243, so that multiplying by powers of 3 brings each to the top.
ASSAY_FN uint8_t ternary_byte(const uint8_t* digits, int stride, int n) noexcept {
  int number = 0;
  for (int k = 0; k < 5; ++k) number = 3 * number + (k < n ? digits[k * stride] : 0);
  return static_cast<uint8_t>((number * 256 + 242) / 243);
}

struct TernaryTQ1_0 {
  using Block = BlockTQ1_0;
  static Block encode(const Values& v, Effort) noexcept {
    Block b{};
    uint8_t digits[256];
    b.d = ternary_digits(v, digits);
    for (int i = 0; i < 32; ++i) b.fives[i] = ternary_byte(digits + i, 32, 5);
    for (int i = 0; i < 16; ++i) b.fives[32 + i] = ternary_byte(digits + 160 + i, 16, 5);
    for (int i = 0; i < 4; ++i) b.fours[i] = ternary_byte(digits + 240 + i, 4, 4);
    return b;
  }
};

struct TernaryTQ2_0 {
  using Block = BlockTQ2_0;
  static Block encode(const Values& v, Effort) noexcept {
    Block b{};
    uint8_t digits[256];
    b.d = ternary_digits(v, digits);
    for (int j = 0; j < 256; ++j) {
      uint8_t& byte = b.q[32 * (j / 128) + j % 32];
      byte = static_cast<uint8_t>(byte | (digits[j] << (2 * (j / 32 % 4))));
    }
    return b;
  }
};

// Sixteen powers of two below the one that the farthest weight asks for, and one above.
template <class L>
struct PowerMxfp4 {
  using Block = BlockMXFP4;
  static Block encode(const Values& v, Effort) noexcept {
    Block b{};
    const Ends ends = ends_of<L>(v.x, 32);
    const float amax = -ends.low > ends.high ? -ends.low : ends.high;
    if (amax == 0) return b;
    // amax / 12 is the scale of the integers, 2^(exponent - 128); its own exponent field is 127 more than its power.
    const int field = static_cast<int>(std::bit_cast<uint32_t>(amax / 12) >> 23) + 2;
    float scales[L::kLanes];
    int exponents[L::kLanes];
    for (int k = 0; k < L::kLanes; ++k) {
      const int exponent = field - k;
      exponents[k] = exponent < 0 ? 0 : exponent > 254 ? 254 : exponent;
      scales[k] = mxfp4_scale(exponents[k]);
    }
    const Found found = best_of(scale_errors<L, Mxfp4Levels>(v, L::load(scales)), L::load(scales));
    b.exponent = static_cast<uint8_t>(exponents[found.lane]);
    float q[32];
    levels_of<L, Mxfp4Levels>(v, found.scale, 0, q);
    for (int j = 0; j < 16; ++j) b.nibbles[j] = static_cast<uint8_t>(code(q[j]) | (code(q[j + 16]) << 4));
    return b;
  }

 private:
  static float mxfp4_scale(int exponent) noexcept { return scales(BlockMXFP4{static_cast<uint8_t>(exponent), {}}).d; }
  static int code(float level) noexcept {
    const float magnitude = level < 0 ? -level : level;
    int i = 0;
    while (static_cast<float>(kLevelsMxfp4[i]) < magnitude) ++i;
    return level < 0 ? i + 8 : i;
  }
};

}  // namespace assay::quant::encode
