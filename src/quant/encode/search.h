// What the encoders share: the error of sixteen candidates at once, and how candidates are laid out. L is PlainLanes or
// a fast twin of it. Bits: a candidate's sum runs over the elements in order, every operation rounded once, none fused;
// of equal errors the first lane wins. Scales are rounded to what the file can hold before their error is taken, so an
// error is that of the values a reader will see.
#pragma once

#include "num/f16.h"
#include "num/round.h"
#include "quant/codebooks.h"
#include "quant/encode/encoder.h"

namespace assay::quant::encode {

// The levels low, low + 1, ... high: the nearest, halves to even.
template <int low, int high>
struct Steps {
  static constexpr int kLow = low, kHigh = high, kCount = high - low + 1;
  template <class L>
  static L nearest(const L& y) noexcept {
    const L magic = L::splat(0x1.8p23f);
    const L inside = L::min(L::max(y, L::splat(static_cast<float>(low))), L::splat(static_cast<float>(high)));
    return (inside + magic) - magic;
  }
};

// Uneven levels, rising: the nearest, of two equally near ones the lower.
template <const int8_t* kLevels, int n>
struct Table {
  static constexpr int kLow = kLevels[0], kHigh = kLevels[n - 1], kCount = n;
  [[gnu::always_inline]] static constexpr float middle(int k) noexcept {
    return 0.5f * static_cast<float>(kLevels[k] + kLevels[k + 1]);
  }
  [[gnu::always_inline]] static constexpr float step(int k) noexcept {
    return static_cast<float>(kLevels[k + 1] - kLevels[k]);
  }
  template <class L>
  static L nearest(const L& y) noexcept {
    L level = L::splat(static_cast<float>(kLevels[0]));
    for (int k = 0; k + 1 < n; ++k) level = level + L::where_above(y, L::splat(middle(k)), L::splat(step(k)));
    return level;
  }
  // The number of a level.
  [[gnu::always_inline]] static int index(float level) noexcept {
    int i = 0;
    while (i + 1 < n && static_cast<float>(kLevels[i]) < level) ++i;
    return i;
  }
};
// -12 .. 12: the values of MXFP4's floats, twice, each once.
ASSAY_TABLE int8_t kLevelsMxfp4Rising[15] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
using Iq4Levels = Table<kLevelsIq4, 16>;
using Mxfp4Levels = Table<kLevelsMxfp4Rising, 15>;

// n elements to encode and their weights; w null: all 1.
struct Values {
  const float* x;
  const float* w;
  int n;
  Values part(int begin, int count) const noexcept { return {x + begin, w == nullptr ? nullptr : w + begin, count}; }
  float weight(int j) const noexcept { return w == nullptr ? 1.0f : w[j]; }
};

// sum_j w_j (x_j - s q_j)^2 with q_j the level nearest to x_j / s, for sixteen scales s.
template <class L, class Levels>
L scale_errors(const Values& v, const L& s) noexcept {
  const L inverse = L::inverse(s);
  L sum = L::splat(0);
  if (v.w == nullptr) {
    for (int j = 0; j < v.n; ++j) {
      const L x = L::splat(v.x[j]);
      const L e = x - s * Levels::nearest(x * inverse);
      sum = sum + e * e;
    }
  } else {
    for (int j = 0; j < v.n; ++j) {
      const L x = L::splat(v.x[j]);
      const L e = x - s * Levels::nearest(x * inverse);
      sum = sum + L::splat(v.w[j]) * (e * e);
    }
  }
  return sum;
}

// The same with an offset: (x_j - (s q_j - m))^2, q_j nearest to (x_j + m) / s.
template <class L, class Levels>
L affine_errors(const Values& v, const L& s, const L& m) noexcept {
  const L inverse = L::inverse(s);
  L sum = L::splat(0);
  if (v.w == nullptr) {
    for (int j = 0; j < v.n; ++j) {
      const L y = L::splat(v.x[j]) + m;
      const L e = y - s * Levels::nearest(y * inverse);
      sum = sum + e * e;
    }
  } else {
    for (int j = 0; j < v.n; ++j) {
      const L y = L::splat(v.x[j]) + m;
      const L e = y - s * Levels::nearest(y * inverse);
      sum = sum + L::splat(v.w[j]) * (e * e);
    }
  }
  return sum;
}

// Of n candidate scales the one whose levels fit best by least squares, and that fit: with levels q the best scale is A
// / B, and it leaves sum w x^2 - A^2 / B, where A = sum w x q, B = sum w q^2.
template <class L, class Levels>
float fitted_scale(const Values& v, const L& s) noexcept {
  const L inverse = L::inverse(s);
  L a = L::splat(0), b = a;
  if (v.w == nullptr) {
    for (int j = 0; j < v.n; ++j) {
      const L x = L::splat(v.x[j]), q = Levels::nearest(x * inverse);
      a = a + x * q;
      b = b + q * q;
    }
  } else {
    for (int j = 0; j < v.n; ++j) {
      const L q = Levels::nearest(L::splat(v.x[j]) * inverse), wq = L::splat(v.w[j]) * q;
      a = a + wq * L::splat(v.x[j]);
      b = b + wq * q;
    }
  }
  const L fit = a * L::inverse(b);
  float scales[L::kLanes];
  fit.store(scales);
  return scales[(L::splat(0) - fit * a).first_smallest()];
}

struct Found {
  float scale = 0, min = 0;
  float error = 0;
  int lane = 0;
};

template <class L>
Found best_of(const L& errors, const L& scales, const L& mins) noexcept {
  float e[L::kLanes], s[L::kLanes], m[L::kLanes];
  const int lane = errors.first_smallest();
  errors.store(e);
  scales.store(s);
  mins.store(m);
  return {s[lane], m[lane], e[lane], lane};
}
template <class L>
Found best_of(const L& errors, const L& scales) noexcept {
  float e[L::kLanes], s[L::kLanes];
  const int lane = errors.first_smallest();
  errors.store(e);
  scales.store(s);
  return {s[lane], 0, e[lane], lane};
}

struct Ends {
  float low, high;
  float farthest() const noexcept { return -low > high ? low : high; }
  bool all_zero() const noexcept { return low == 0.0f && high == 0.0f; }
};
// n a multiple of 16.
template <class L>
Ends ends_of(const float* x, int n) noexcept {
  L low = L::load(x), high = low;
  for (int j = L::kLanes; j < n; j += L::kLanes) {
    const L next = L::load(x + j);
    low = L::min(next, low);
    high = L::max(next, high);
  }
  return {low.lowest(), high.highest()};
}

// The largest half-precision number: no scale goes beyond.
ASSAY_TABLE float kHalfMax = 65504.0f;

template <class L>
L within_half(const L& x) noexcept {
  return L::half(L::min(L::max(x, L::splat(-kHalfMax)), L::splat(kHalfMax)));
}
template <class L>
float half_of(float x) noexcept {
  const float inside = x > kHalfMax ? kHalfMax : x < -kHalfMax ? -kHalfMax : x;
  return L::from_half_bits(L::half_bits(inside));
}
ASSAY_FN float inverse_of(float s) noexcept { return s == 0.0f ? 0.0f : 1.0f / s; }

// The centre itself in lane 0, then scales to both sides of it, `spread` apart.
template <class L>
L around(float centre, float spread) noexcept {
  constexpr float kOffsets[16] = {0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -7, 7, 8};
  return L::splat(centre) * (L::splat(1.0f) + L::load(kOffsets) * L::splat(spread));
}

// The level nearest to (x_j + m) / s, for each of n elements (a multiple of 16).
template <class L, class Levels>
void levels_of(const Values& v, float s, float m, float* q) noexcept {
  const L inverse = L::splat(inverse_of(s)), offset = L::splat(m);
  for (int j = 0; j < v.n; j += L::kLanes) Levels::nearest((L::load(v.x + j) + offset) * inverse).store(q + j);
}

// One value of `levels_of` in plain C++.
template <class Whole>
ASSAY_FN float nearest_one(float y) noexcept {
  const float above = y > static_cast<float>(Whole::kLow) ? y : static_cast<float>(Whole::kLow);
  return num::rint_small(above < static_cast<float>(Whole::kHigh) ? above : static_cast<float>(Whole::kHigh));
}

// Element j goes to lane j % 16.
template <class L>
float fold(const L& sum) noexcept {
  return sum.sum();
}
template <class L>
L weights_at(const Values& v, int j) noexcept {
  return v.w == nullptr ? L::splat(1.0f) : L::load(v.w + j);
}

// As scale_errors for one scale; here element j goes to lane j % 16.
template <class L, class Levels>
float scale_error(const Values& v, float s) noexcept {
  const L scale = L::splat(s), inverse = L::splat(inverse_of(s));
  L sum = L::splat(0);
  for (int j = 0; j < v.n; j += L::kLanes) {
    const L x = L::load(v.x + j);
    const L e = x - scale * Levels::nearest(x * inverse);
    sum = sum + weights_at<L>(v, j) * (e * e);
  }
  return fold(sum);
}

// The scale that fits best to the levels that scale s gives: sum w x q / sum w q^2. s itself where all levels are 0.
template <class L, class Levels>
float refitted_scale(const Values& v, float s) noexcept {
  const L inverse = L::splat(inverse_of(s));
  L q2 = L::splat(0), xq = q2;
  for (int j = 0; j < v.n; j += L::kLanes) {
    const L x = L::load(v.x + j);
    const L q = Levels::nearest(x * inverse);
    const L wq = weights_at<L>(v, j) * q;
    q2 = q2 + wq * q;
    xq = xq + wq * x;
  }
  const float down = fold(q2);
  return down > 0 ? fold(xq) / down : s;
}

}  // namespace assay::quant::encode
