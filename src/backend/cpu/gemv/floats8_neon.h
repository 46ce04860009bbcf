// floats8.h by NEON: two registers each. Included by kernel files only; everything here is local to the file that
// includes it.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace assay::backend::cpu {
namespace {

struct Floats8 {
  float32x4_t low, high;
};
struct Ints8 {
  int32x4_t low, high;
};

inline Floats8 splat_8(float x) noexcept { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline Floats8 zero_8() noexcept { return splat_8(0.0f); }
inline Floats8 load_8(const float* p) noexcept { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
inline void store_8(float* p, Floats8 x) noexcept {
  vst1q_f32(p, x.low);
  vst1q_f32(p + 4, x.high);
}
inline Floats8 add_8(Floats8 a, Floats8 b) noexcept { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
inline Floats8 mul_8(Floats8 a, Floats8 b) noexcept { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
inline Floats8 fma_8(Floats8 a, Floats8 b, Floats8 c) noexcept {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
inline Floats8 to_floats(Ints8 x) noexcept { return {vcvtq_f32_s32(x.low), vcvtq_f32_s32(x.high)}; }
// Lanes of a where mask is -1, of b where it is 0.
inline Floats8 choose_8(const int32_t* mask, Floats8 a, Floats8 b) noexcept {
  const uint32x4_t low = vreinterpretq_u32_s32(vld1q_s32(mask)), high = vreinterpretq_u32_s32(vld1q_s32(mask + 4));
  return {vbslq_f32(low, a.low, b.low), vbslq_f32(high, a.high, b.high)};
}

// Lane i is lane places[i] of x.
inline Floats8 permute_8(Floats8 x, const int32_t* places) noexcept {
  float lanes[8], out[8];
  store_8(lanes, x);
  for (int i = 0; i < 8; ++i) out[i] = lanes[places[i]];
  return load_8(out);
}

// x -= factor * y.
template <int kFactor>
inline void subtract_products(Ints8& x, const int32_t* y) noexcept {
  x.low = vmlsq_n_s32(x.low, vld1q_s32(y), kFactor);
  x.high = vmlsq_n_s32(x.high, vld1q_s32(y + 4), kFactor);
}

// Section 2.4 of the contract over the chunks c0..c7.
inline float tree(Floats8 c) noexcept {
  const float32x4_t pairs = vpaddq_f32(c.low, c.high);
  const float32x2_t fours = vpadd_f32(vget_low_f32(pairs), vget_high_f32(pairs));
  return vget_lane_f32(fours, 0) + vget_lane_f32(fours, 1);
}

}  // namespace
}  // namespace assay::backend::cpu
