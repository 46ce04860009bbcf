// Sixteen candidates (or eight: Narrow) side by side, in plain C++: lane k of every operation is that operation on lane
// k. The encoders are written once over such a type; lanes_avx2.h has the same in registers. Every operation rounds
// once and none is fused, so both give the same bits.
#pragma once

#include "num/f16.h"

namespace assay::quant::encode {

template <int n_lanes>
struct PlainLanesOf {
  static constexpr int kLanes = n_lanes;
  using Narrow = PlainLanesOf<8>;
  float v[kLanes];

  static PlainLanesOf splat(float x) noexcept {
    PlainLanesOf r;
    for (float& lane : r.v) lane = x;
    return r;
  }
  static PlainLanesOf load(const float* x) noexcept {
    PlainLanesOf r;
    for (int k = 0; k < kLanes; ++k) r.v[k] = x[k];
    return r;
  }
  void store(float* out) const noexcept {
    for (int k = 0; k < kLanes; ++k) out[k] = v[k];
  }

  template <class F>
  static PlainLanesOf each(const PlainLanesOf& a, const PlainLanesOf& b, F f) noexcept {
    PlainLanesOf r;
    for (int k = 0; k < kLanes; ++k) r.v[k] = f(a.v[k], b.v[k]);
    return r;
  }
  friend PlainLanesOf operator+(const PlainLanesOf& a, const PlainLanesOf& b) noexcept {
    return each(a, b, [](float x, float y) { return x + y; });
  }
  friend PlainLanesOf operator-(const PlainLanesOf& a, const PlainLanesOf& b) noexcept {
    return each(a, b, [](float x, float y) { return x - y; });
  }
  friend PlainLanesOf operator*(const PlainLanesOf& a, const PlainLanesOf& b) noexcept {
    return each(a, b, [](float x, float y) { return x * y; });
  }
  friend PlainLanesOf operator/(const PlainLanesOf& a, const PlainLanesOf& b) noexcept {
    return each(a, b, [](float x, float y) { return x / y; });
  }
  static PlainLanesOf min(const PlainLanesOf& a, const PlainLanesOf& b) noexcept {
    return each(a, b, [](float x, float y) { return x < y ? x : y; });
  }
  static PlainLanesOf max(const PlainLanesOf& a, const PlainLanesOf& b) noexcept {
    return each(a, b, [](float x, float y) { return x > y ? x : y; });
  }
  // a where x > t, else 0.
  static PlainLanesOf where_above(const PlainLanesOf& x, const PlainLanesOf& t, const PlainLanesOf& a) noexcept {
    PlainLanesOf r;
    for (int k = 0; k < kLanes; ++k) r.v[k] = x.v[k] > t.v[k] ? a.v[k] : 0.0f;
    return r;
  }
  // a where x > t, else b.
  static PlainLanesOf select_above(const PlainLanesOf& x, const PlainLanesOf& t, const PlainLanesOf& a,
                                   const PlainLanesOf& b) noexcept {
    PlainLanesOf r;
    for (int k = 0; k < kLanes; ++k) r.v[k] = x.v[k] > t.v[k] ? a.v[k] : b.v[k];
    return r;
  }
  // 1 / x; 0 where x is 0.
  static PlainLanesOf inverse(const PlainLanesOf& x) noexcept {
    PlainLanesOf r;
    for (int k = 0; k < kLanes; ++k) r.v[k] = x.v[k] == 0.0f ? 0.0f : 1.0f / x.v[k];
    return r;
  }
  // Rounded to half precision.
  static PlainLanesOf half(const PlainLanesOf& x) noexcept {
    PlainLanesOf r;
    for (int k = 0; k < kLanes; ++k) r.v[k] = num::half_to_float(num::float_to_half(x.v[k]));
    return r;
  }
  // Lane k with lane k + 8, of those k with k + 4, then 2, then 1.
  template <class F>
  float folded(F f) const noexcept {
    float part[kLanes];
    for (int k = 0; k < kLanes; ++k) part[k] = v[k];
    for (int n = kLanes / 2; n > 0; n /= 2) {
      for (int k = 0; k < n; ++k) part[k] = f(part[k], part[k + n]);
    }
    return part[0];
  }
  float sum() const noexcept {
    return folded([](float x, float y) { return x + y; });
  }
  float lowest() const noexcept {
    return folded([](float x, float y) { return x < y ? x : y; });
  }
  float highest() const noexcept {
    return folded([](float x, float y) { return x > y ? x : y; });
  }
  // One number to half precision: its bits, and back.
  static uint16_t half_bits(float x) noexcept { return num::float_to_half(x); }
  static float from_half_bits(uint16_t x) noexcept { return num::half_to_float(x); }
  // The first lane whose value is smallest; no NaN among them.
  int first_smallest() const noexcept {
    int best = 0;
    for (int k = 1; k < kLanes; ++k) best = v[k] < v[best] ? k : best;
    return best;
  }
};
using PlainLanes = PlainLanesOf<16>;

}  // namespace assay::quant::encode
