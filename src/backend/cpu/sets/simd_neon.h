// Sixteen floats at a time with NEON: four registers. simd_avx2.h and simd_avx512.h offer the same names; kernels are
// written once over them
// (*_simd.h). Everything has internal linkage: a file built for a wide instruction set must not lend code to others.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace assay::backend::cpu {
namespace {

struct Vec {
  float32x4_t v[4];
};

// Rows times columns (in Vec) of a register tile: accumulators for 24 of the 32 registers.
constexpr int kTileRegisters = 6;
constexpr int kTileRows = 6;

template <class Make>
static inline Vec each(const Make& make) noexcept {
  return {make(0), make(1), make(2), make(3)};
}

static inline Vec splat(float x) noexcept {
  return each([=](int) { return vdupq_n_f32(x); });
}
static inline Vec load(const float* x) noexcept {
  return each([=](int i) { return vld1q_f32(x + 4 * i); });
}
static inline void store(float* y, const Vec& x) noexcept {
  for (int i = 0; i < 4; ++i) vst1q_f32(y + 4 * i, x.v[i]);
}
// The first n < 16 elements; the others are +0 and memory behind them is not touched.
static inline Vec load_first(const float* x, int64_t n) noexcept {
  float all[16] = {};
  __builtin_memcpy(all, x, static_cast<size_t>(n) * sizeof(float));
  return load(all);
}
static inline void store_first(float* y, const Vec& x, int64_t n) noexcept {
  float all[16];
  store(all, x);
  __builtin_memcpy(y, all, static_cast<size_t>(n) * sizeof(float));
}

static inline Vec add(const Vec& x, const Vec& y) noexcept {
  return each([&](int i) { return vaddq_f32(x.v[i], y.v[i]); });
}
static inline Vec sub(const Vec& x, const Vec& y) noexcept {
  return each([&](int i) { return vsubq_f32(x.v[i], y.v[i]); });
}
static inline Vec mul(const Vec& x, const Vec& y) noexcept {
  return each([&](int i) { return vmulq_f32(x.v[i], y.v[i]); });
}
static inline Vec div(const Vec& x, const Vec& y) noexcept {
  return each([&](int i) { return vdivq_f32(x.v[i], y.v[i]); });
}
static inline Vec fma(const Vec& x, const Vec& y, const Vec& z) noexcept {
  return each([&](int i) { return vfmaq_f32(z.v[i], x.v[i], y.v[i]); });
}
// x > y ? x : y in each lane, so that a NaN in x is passed over. (fmax would keep it, fmaxnm pass over one in y too.)
static inline Vec greater(const Vec& x, const Vec& y) noexcept {
  return each([&](int i) { return vbslq_f32(vcgtq_f32(x.v[i], y.v[i]), x.v[i], y.v[i]); });
}
// x < y ? x : y in each lane, so that a NaN in y stays.
static inline Vec smaller(const Vec& x, const Vec& y) noexcept {
  return each([&](int i) { return vbslq_f32(vcltq_f32(x.v[i], y.v[i]), x.v[i], y.v[i]); });
}
// a > b ? yes : no in each lane; no where one is a NaN.
static inline Vec where_greater(const Vec& a, const Vec& b, const Vec& yes, const Vec& no) noexcept {
  return each([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), yes.v[i], no.v[i]); });
}
static inline Vec without_sign(const Vec& x) noexcept {
  return each([&](int i) { return vabsq_f32(x.v[i]); });
}
// x, whose sign bit is clear, with y's.
static inline Vec with_sign_of(const Vec& x, const Vec& y) noexcept {
  return each([&](int i) { return vbslq_f32(vdupq_n_u32(0x80000000u), y.v[i], x.v[i]); });
}
static inline Vec negate(const Vec& x) noexcept {
  return each([&](int i) { return vnegq_f32(x.v[i]); });
}
// p * 2^n in two halves, as num::exp does it. shifted: n plus the rounding constant 1.5 * 2^23, whose low bits are n.
static inline Vec times_power_of_two(const Vec& p, const Vec& /*n*/, const Vec& shifted) noexcept {
  return each([&](int i) {
    const int32x4_t count = vsubq_s32(vreinterpretq_s32_f32(shifted.v[i]), vdupq_n_s32(0x4B400000));
    const int32x4_t half = vshrq_n_s32(count, 1), bias = vdupq_n_s32(127);
    const int32x4_t scale_1 = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t scale_2 = vshlq_n_s32(vaddq_s32(vsubq_s32(count, half), bias), 23);
    return vmulq_f32(vmulq_f32(p.v[i], vreinterpretq_f32_s32(scale_1)), vreinterpretq_f32_s32(scale_2));
  });
}

static inline Vec load_half(const void* x) noexcept {
  const auto* p = static_cast<const uint16_t*>(x);
  return each([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
static inline void store_half(void* y, const Vec& x) noexcept {
  auto* p = static_cast<uint16_t*>(y);
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
static inline Vec load_int8(const void* x) noexcept {
  const int8x16_t bytes = vld1q_s8(static_cast<const int8_t*>(x));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
          vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}

// Lanes begin <= i < end of x, other where not.
static inline Vec within(const Vec& x, int64_t begin, int64_t end, const Vec& other) noexcept {
  constexpr int32_t kFirst[4] = {0, 1, 2, 3};
  return each([&](int i) {
    const int32x4_t lane = vaddq_s32(vld1q_s32(kFirst), vdupq_n_s32(4 * i));
    const uint32x4_t inside = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(static_cast<int32_t>(begin))),
                                        vcltq_s32(lane, vdupq_n_s32(static_cast<int32_t>(end))));
    return vbslq_f32(inside, x.v[i], other.v[i]);
  });
}

struct Pair {
  Vec first, second;
};
// Elements at even and at odd places of 32 in a row, and back.
static inline Pair unzip(const Vec& low, const Vec& high) noexcept {
  const float32x4_t* part[] = {low.v, low.v + 2, high.v, high.v + 2};
  return {each([&](int i) { return vuzp1q_f32(part[i][0], part[i][1]); }),
          each([&](int i) { return vuzp2q_f32(part[i][0], part[i][1]); })};
}
static inline Pair zip(const Vec& even, const Vec& odd) noexcept {
  const auto part = [&](int i) {
    return i % 2 == 0 ? vzip1q_f32(even.v[i / 2], odd.v[i / 2]) : vzip2q_f32(even.v[i / 2], odd.v[i / 2]);
  };
  return {each(part), each([&](int i) { return part(i + 4); })};
}

// Lanes32 (num/lanes.h) whose lanes 0..15 are low and 16..31 high.
static inline float fold(const Vec& low, const Vec& high) noexcept {
  const Vec sixteen = add(low, high);
  const float32x4_t four = vaddq_f32(vaddq_f32(sixteen.v[0], sixteen.v[2]), vaddq_f32(sixteen.v[1], sixteen.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
static inline float largest(const Vec& x) noexcept {  // no lane may be NaN
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.v[0], x.v[1]), vmaxq_f32(x.v[2], x.v[3])));
}
static inline float square_root(float x) noexcept { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }
static inline float half_bits_to_float(uint16_t bits) noexcept {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}

}  // namespace
}  // namespace assay::backend::cpu
