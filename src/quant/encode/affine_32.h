// Formats of scale and offset: the search for both, and the two formats of 32 weights with them in half precision, Q4_1
// and Q5_1.
#pragma once

#include "quant/encode/search.h"
#include "quant/q4_1.h"
#include "quant/q5_1.h"

namespace assay::quant::encode {

// Sixteen pairs of scale and offset: value = scale * level - min.
template <class L>
struct Pairs {
  L scale, min, error;
};

// What no candidate changes: sums over t = x - shift. shift: so that a large common part costs no precision.
struct Moments {
  float shift;
  float w0 = 0, x1 = 0, x2 = 0;  // sum w, sum w t, sum w t^2
};

ASSAY_FN Moments moments_of(const Values& v, float shift) noexcept {
  Moments sums{shift};
  for (int j = 0; j < v.n; ++j) {
    const float w = v.weight(j), t = v.x[j] - shift, wt = w * t;
    sums.w0 += w;
    sums.x1 += wt;
    sums.x2 += wt * t;
  }
  return sums;
}

// The pairs that fit best by least squares to the levels nearest to (x_j + m) / s, level >= 0. no_negative_min: offsets
// below zero become zero (formats that store none).
template <class L, class Levels>
Pairs<L> fitted(const Values& v, const L& s, const L& m, const Moments& sums, bool no_negative_min) noexcept {
  const float shift = sums.shift;
  const L inverse = L::inverse(s), offset = m + L::splat(shift);
  L q1 = L::splat(0), q2 = q1, xq = q1;
  if (v.w == nullptr) {
    for (int j = 0; j < v.n; ++j) {
      const L t = L::splat(v.x[j] - shift), q = Levels::nearest((t + offset) * inverse);
      q1 = q1 + q;
      q2 = q2 + q * q;
      xq = xq + t * q;
    }
  } else {
    for (int j = 0; j < v.n; ++j) {
      const float w = v.w[j], t = v.x[j] - shift, wt = w * t;
      const L q = Levels::nearest((L::splat(t) + offset) * inverse);
      const L wq = L::splat(w) * q;
      q1 = q1 + wq;
      q2 = q2 + wq * q;
      xq = xq + L::splat(wt) * q;
    }
  }
  // t ~ scale * q + base, base = shift' - min
  const L zero = L::splat(0), w = L::splat(sums.w0), x = L::splat(sums.x1);
  const L det = w * q2 - q1 * q1;
  const L one_over = L::select_above(det, zero, L::inverse(det), zero);
  const L scale = (w * xq - x * q1) * one_over;
  const L base = (q2 * x - q1 * xq) * one_over;
  const L free_error = L::splat(sums.x2) - scale * xq - base * x;
  // Where all levels are equal there is nothing to solve: the pair stays.
  Pairs<L> free{L::select_above(det, zero, scale, s), L::select_above(det, zero, zero - (base + L::splat(shift)), m),
                free_error};
  if (!no_negative_min) return free;
  const L tied_base = L::splat(-shift);
  // sum w (t - tied_base) q / sum w q^2
  const L tied_scale = (xq - tied_base * q1) * L::inverse(q2);
  const L rest = L::splat(sums.x2) - (x + x) * tied_base + w * (tied_base * tied_base);
  const L tied_error = rest - tied_scale * (xq - tied_base * q1);
  return {L::select_above(zero, free.min, tied_scale, free.scale), L::max(free.min, zero),
          L::select_above(zero, free.min, tied_error, free.error)};
}

// The first sixteen: the range from low to high in `top + delta` steps, the offset at the low end or a little above it.
struct AffineSearch {
  float delta[16];  // added to the number of steps
  float lift[16];   // of the offset, as a share of the range
};

template <class L, class Levels>
Pairs<L> first_pairs(const Values& v, const Ends& ends, const AffineSearch& search, int refits,
                     bool no_negative_min) noexcept {
  const float low = no_negative_min && ends.low > 0 ? 0.0f : ends.low;
  const float range = ends.high - low;
  const L steps = L::splat(static_cast<float>(Levels::kHigh)) + L::load(search.delta);
  const L scale = L::splat(range) / steps;
  const L min = L::splat(-low) - L::splat(range) * L::load(search.lift);
  const Moments sums = moments_of(v, low);
  Pairs<L> pairs = fitted<L, Levels>(v, scale, min, sums, no_negative_min);
  for (int i = 0; i < refits; ++i) {
    const Pairs<L> next = fitted<L, Levels>(v, pairs.scale, pairs.min, sums, no_negative_min);
    pairs = {L::select_above(pairs.error, next.error, next.scale, pairs.scale),
             L::select_above(pairs.error, next.error, next.min, pairs.min), L::min(pairs.error, next.error)};
  }
  return pairs;
}

constexpr AffineSearch kAffine4 = {
    {-1.0f, -0.8f, -0.6f, -0.4f, -0.2f, 0.0f, 0.2f, 0.4f, 0.6f, 0.9f, -0.4f, 0.0f, 0.4f, 0.8f, 1.2f, 1.6f},
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.02f, 0.02f, 0.02f, 0.02f, 0.04f, 0.04f}};
constexpr AffineSearch kAffine5 = {
    {-1.0f, -0.75f, -0.5f, -0.25f, 0.0f, 0.25f, 0.5f, 0.75f, 1.0f, 1.5f, -0.5f, 0.0f, 0.5f, 1.0f, 1.5f, 2.0f},
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.01f, 0.01f, 0.01f, 0.01f, 0.02f, 0.02f}};

// Scale and offset in half precision: the fitted pairs rounded, their errors taken, then pairs beside the best.
template <class L, class Levels>
Found find_pair(const Values& v, const Ends& ends, const AffineSearch& search, Effort effort) noexcept {
  const Pairs<L> pairs = first_pairs<L, Levels>(v, ends, search, effort == Effort::fast ? 0 : 1, false);
  const L scale = within_half(pairs.scale), min = within_half(pairs.min);
  Found best = best_of(affine_errors<L, Levels>(v, scale, min), scale, min);
  constexpr float kScale[16] = {-1.5f, -0.5f, 0.5f, 1.5f, -1.5f, -0.5f, 0.5f, 1.5f,
                                -1.5f, -0.5f, 0.5f, 1.5f, -1.5f, -0.5f, 0.5f, 1.5f};
  constexpr float kMin[16] = {-1.5f, -1.5f, -1.5f, -1.5f, -0.5f, -0.5f, -0.5f, -0.5f,
                              0.5f,  0.5f,  0.5f,  0.5f,  1.5f,  1.5f,  1.5f,  1.5f};
  const int rounds = effort == Effort::fast ? 0 : effort == Effort::normal ? 1 : 8;
  float reach = 0.08f;  // of a step at the end of the range
  for (int round = 0; round < rounds; ++round, reach *= 0.75f) {
    const L s = within_half(L::splat(best.scale) *
                            (L::splat(1.0f) + L::load(kScale) * L::splat(reach / static_cast<float>(Levels::kHigh))));
    const L m = within_half(L::splat(best.min) + L::splat(best.scale) * (L::load(kMin) * L::splat(reach)));
    const Found found = best_of(affine_errors<L, Levels>(v, s, m), s, m);
    if (found.error < best.error) best = found;
  }
  return best;
}

template <class L>
struct AffineQ4_1 {
  using Block = BlockQ4_1;
  static Block encode(const Values& v, Effort effort) noexcept {
    Block b{};
    const Ends ends = ends_of<L>(v.x, 32);
    if (ends.all_zero()) return b;
    const Found found = find_pair<L, Steps<0, 15>>(v, ends, kAffine4, effort);
    b.d = L::half_bits(found.scale);
    b.m = L::half_bits(-found.min);
    float q[32];
    levels_of<L, Steps<0, 15>>(v, found.scale, found.min, q);
    for (int j = 0; j < 16; ++j)
      b.nibbles[j] = static_cast<uint8_t>(static_cast<int>(q[j]) | (static_cast<int>(q[j + 16]) << 4));
    return b;
  }
};

template <class L>
struct AffineQ5_1 {
  using Block = BlockQ5_1;
  static Block encode(const Values& v, Effort effort) noexcept {
    Block b{};
    const Ends ends = ends_of<L>(v.x, 32);
    if (ends.all_zero()) return b;
    const Found found = find_pair<L, Steps<0, 31>>(v, ends, kAffine5, effort);
    b.d = L::half_bits(found.scale);
    b.m = L::half_bits(-found.min);
    float q[32];
    levels_of<L, Steps<0, 31>>(v, found.scale, found.min, q);
    uint8_t levels[32];
    for (int j = 0; j < 32; ++j) levels[j] = static_cast<uint8_t>(q[j]);
    pack_5_bits(levels, b.nibbles, b.high_bits);
    return b;
  }
};

}  // namespace assay::quant::encode
