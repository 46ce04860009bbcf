// Superblocks whose sub-blocks have a scale and an offset, both rounded to few bits of the superblock's two
// half-precision factors: Q4_K, Q5_K, Q2_K. First each sub-block alone (affine_32.h), which gives the factors; then,
// with the factors as rounded, each sub-block's two small integers by the error they leave; then the factors by least
// squares to all that was chosen, and the integers again.
#pragma once

#include "quant/encode/affine_32.h"
#include "quant/encode/gain.h"
#include "quant/q2_k.h"
#include "quant/q4_k.h"
#include "quant/q5_k.h"

namespace assay::quant::encode {

template <int sub, int top_level, int top_scale>
struct AffineShape {
  static constexpr int kSub = sub, kCount = 256 / sub, kTop = top_scale;
  using Levels = Steps<0, top_level>;
};

// A superblock with its choices: value = (d * scale[i]) * level - d_min * min[i].
template <class Shape>
struct AffineChoice {
  float d = 0, d_min = 0;
  float scale[Shape::kCount] = {}, min[Shape::kCount] = {};  // whole numbers
  float error = 0;
};

// Each sub-block's integers among sixteen around where they stand.
template <class L, class Shape>
void choose_integers(const Values& v, const float* scale_steps, const float* min_steps,
                     AffineChoice<Shape>& c) noexcept {
  const L zero = L::splat(0), top = L::splat(static_cast<float>(Shape::kTop));
  c.error = 0;
  for (int i = 0; i < Shape::kCount; ++i) {
    const L scale = L::min(L::max(L::splat(c.scale[i]) + L::load(scale_steps), zero), top);
    const L min = L::min(L::max(L::splat(c.min[i]) + L::load(min_steps), zero), top);
    const L errors = affine_errors<L, typename Shape::Levels>(v.part(i * Shape::kSub, Shape::kSub),
                                                              L::splat(c.d) * scale, L::splat(c.d_min) * min);
    const Found found = best_of(errors, scale, min);
    c.scale[i] = found.scale;
    c.min[i] = found.min;
    c.error += found.error;
  }
}

// The factors that fit best to the levels and integers chosen.
template <class L, class Shape>
AffineChoice<Shape> refactored(const Values& v, const AffineChoice<Shape>& c) noexcept {
  float aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;  // a = scale * level, b = min
  for (int i = 0; i < Shape::kCount; ++i) {
    const Values part = v.part(i * Shape::kSub, Shape::kSub);
    float q[Shape::kSub];
    levels_of<L, typename Shape::Levels>(part, c.d * c.scale[i], c.d_min * c.min[i], q);
    L w0 = L::splat(0), q1 = w0, q2 = w0, x1 = w0, xq = w0;
    for (int j = 0; j < Shape::kSub; j += L::kLanes) {
      const L w = weights_at<L>(part, j), level = L::load(q + j), x = L::load(part.x + j);
      const L wq = w * level;
      w0 = w0 + w;
      q1 = q1 + wq;
      q2 = q2 + wq * level;
      x1 = x1 + w * x;
      xq = xq + wq * x;
    }
    const float s = c.scale[i], m = c.min[i];
    aa += s * s * fold(q2);
    ab += s * m * fold(q1);
    bb += m * m * fold(w0);
    xa += s * fold(xq);
    xb += m * fold(x1);
  }
  AffineChoice<Shape> next = c;
  const float det = aa * bb - ab * ab;
  if (det > 0) {
    next.d = half_of<L>((xa * bb - xb * ab) / det);
    next.d_min = half_of<L>((xa * ab - xb * aa) / det);
  } else if (aa > 0) {
    next.d = half_of<L>(xa / aa);
  }
  return next;
}

struct AffineSteps {
  float scale[16], min[16];
};
// All nine neighbours, and the next ones along the line on which a larger scale goes with a larger offset.
constexpr AffineSteps kNear = {{0, -1, 1, 0, 0, -1, 1, -1, 1, -2, 2, -2, 2, -1, 1, 0},
                               {0, 0, 0, -1, 1, -1, 1, 1, -1, -1, 1, -2, 2, -2, 2, 2}};
constexpr AffineSteps kWide = {{0, -1, 1, 2, -2, -3, 3, 0, 0, 1, -1, 2, -2, 3, -3, 0},
                               {0, 0, 0, 0, 0, 0, 0, 3, -3, 3, -3, 3, -3, 3, -3, -2}};

template <class L, class Shape>
AffineChoice<Shape> choose_affine(const Values& v, const AffineSearch& search, Effort effort) noexcept {
  AffineChoice<Shape> c;
  float scale_max = 0, min_max = 0;
  for (int i = 0; i < Shape::kCount; ++i) {
    const Values part = v.part(i * Shape::kSub, Shape::kSub);
    const Ends ends = ends_of<L>(part.x, Shape::kSub);
    if (ends.all_zero()) continue;
    const Pairs<L> pairs =
        first_pairs<L, typename Shape::Levels>(part, ends, search, effort == Effort::fast ? 0 : 1, true);
    const Found found = best_of(pairs.error, pairs.scale, pairs.min);
    c.scale[i] = found.scale;
    c.min[i] = found.min;
    scale_max = found.scale > scale_max ? found.scale : scale_max;
    min_max = found.min > min_max ? found.min : min_max;
  }
  c.d = half_of<L>(scale_max / static_cast<float>(Shape::kTop));
  c.d_min = half_of<L>(min_max / static_cast<float>(Shape::kTop));
  const float inverse = inverse_of(c.d), inverse_min = inverse_of(c.d_min);
  using Integers = Steps<0, Shape::kTop>;
  for (int i = 0; i < Shape::kCount; ++i) {
    c.scale[i] = nearest_one<Integers>(c.scale[i] * inverse);
    c.min[i] = nearest_one<Integers>(c.min[i] * inverse_min);
  }
  choose_integers<L>(v, kNear.scale, kNear.min, c);
  const int rounds = effort == Effort::fast ? 0 : effort == Effort::normal ? 1 : 6;
  for (int round = 0; round < rounds; ++round) {
    AffineChoice<Shape> next = refactored<L>(v, c);
    if (effort == Effort::best) choose_integers<L>(v, kWide.scale, kWide.min, next);
    choose_integers<L>(v, kNear.scale, kNear.min, next);
    if (!(next.error < c.error)) break;
    c = next;
  }
  return c;
}

// The levels of a choice; its factors become those to be stored with them.
template <class L, class Shape>
void take_affine_levels(const Values& v, AffineChoice<Shape>& c, uint8_t* levels) noexcept {
  GainSums<L> sums;
  for (int i = 0; i < Shape::kCount; ++i) {
    const Values part = v.part(i * Shape::kSub, Shape::kSub);
    const float scale = c.d * c.scale[i], min = c.d_min * c.min[i];
    float q[Shape::kSub];
    levels_of<L, typename Shape::Levels>(part, scale, min, q);
    for (int j = 0; j < Shape::kSub; ++j) levels[i * Shape::kSub + j] = static_cast<uint8_t>(q[j]);
    if (!regains<typename Shape::Levels>(v)) continue;
    for (int j = 0; j < Shape::kSub; j += L::kLanes)
      sums.add(L::load(part.x + j), L::splat(scale) * L::load(q + j) - L::splat(min));
  }
  if (!regains<typename Shape::Levels>(v)) return;
  const float gain = sums.gain();
  c.d = half_of<L>(c.d * gain);
  c.d_min = half_of<L>(c.d_min * gain);
}

// The reverse of unpack_k_scales.
ASSAY_FN void pack_k_scales(const float* scale, const float* min, uint8_t* packed) noexcept {
  for (int i = 0; i < 4; ++i) {
    const int s = static_cast<int>(scale[i]), m = static_cast<int>(min[i]);
    const int s4 = static_cast<int>(scale[i + 4]), m4 = static_cast<int>(min[i + 4]);
    packed[i] = static_cast<uint8_t>(s | ((s4 >> 4) << 6));
    packed[i + 4] = static_cast<uint8_t>(m | ((m4 >> 4) << 6));
    packed[i + 8] = static_cast<uint8_t>((s4 & 15) | ((m4 & 15) << 4));
  }
}

constexpr AffineSearch kAffine2 = {
    {-0.6f, -0.4f, -0.2f, 0.0f, 0.2f, 0.4f, 0.6f, 0.9f, -0.2f, 0.1f, 0.4f, 0.7f, 1.0f, 1.4f, 0.8f, 1.3f},
    {0, 0, 0, 0, 0, 0, 0, 0, 0.06f, 0.06f, 0.06f, 0.06f, 0.06f, 0.06f, 0.12f, 0.12f}};

template <class L>
struct SuperQ4_K {
  using Block = BlockQ4_K;
  using Shape = AffineShape<32, 15, 63>;
  static Block encode(const Values& v, Effort effort) noexcept {
    AffineChoice<Shape> c = choose_affine<L, Shape>(v, kAffine4, effort);
    uint8_t levels[256];
    take_affine_levels<L>(v, c, levels);
    Block b{};
    b.d = L::half_bits(c.d);
    b.d_min = L::half_bits(c.d_min);
    pack_k_scales(c.scale, c.min, b.sub_scales);
    for (int i = 0; i < 128; ++i) {
      const int at = 64 * (i / 32) + i % 32;
      b.nibbles[i] = static_cast<uint8_t>(levels[at] | (levels[at + 32] << 4));
    }
    return b;
  }
};

template <class L>
struct SuperQ5_K {
  using Block = BlockQ5_K;
  using Shape = AffineShape<32, 31, 63>;
  static Block encode(const Values& v, Effort effort) noexcept {
    AffineChoice<Shape> c = choose_affine<L, Shape>(v, kAffine5, effort);
    uint8_t levels[256];
    take_affine_levels<L>(v, c, levels);
    Block b{};
    b.d = L::half_bits(c.d);
    b.d_min = L::half_bits(c.d_min);
    pack_k_scales(c.scale, c.min, b.sub_scales);
    for (int i = 0; i < 128; ++i) {
      const int at = 64 * (i / 32) + i % 32;
      b.nibbles[i] = static_cast<uint8_t>((levels[at] & 15) | ((levels[at + 32] & 15) << 4));
    }
    for (int j = 0; j < 256; ++j)
      b.high_bits[j % 32] = static_cast<uint8_t>(b.high_bits[j % 32] | ((levels[j] >> 4) << (j / 32)));
    return b;
  }
};

template <class L>
struct SuperQ2_K {
  using Block = BlockQ2_K;
  using Shape = AffineShape<16, 3, 15>;
  static Block encode(const Values& v, Effort effort) noexcept {
    AffineChoice<Shape> c = choose_affine<L, Shape>(v, kAffine2, effort);
    uint8_t levels[256];
    take_affine_levels<L>(v, c, levels);
    Block b{};
    b.d = L::half_bits(c.d);
    b.d_min = L::half_bits(c.d_min);
    for (int i = 0; i < 16; ++i)
      b.sub_scales[i] = static_cast<uint8_t>(static_cast<int>(c.scale[i]) | (static_cast<int>(c.min[i]) << 4));
    for (int j = 0; j < 256; ++j) {
      uint8_t& byte = b.q[32 * (j / 128) + j % 32];
      byte = static_cast<uint8_t>(byte | (levels[j] << (2 * (j / 32 % 4))));
    }
    return b;
  }
};

}  // namespace assay::quant::encode
