// Superblocks whose sub-blocks have a signed scale of few bits of the superblock's half-precision factor: Q6_K, Q3_K,
// IQ4_XS. First each sub-block alone, which gives the factor; then, with the factor as rounded, each sub-block's
// integer by the error it leaves; then the factor by least squares to all that was chosen, and the integers again.
#pragma once

#include "quant/encode/large_weights.h"
#include "quant/encode/signed_32.h"
#include "quant/iq4_xs.h"
#include "quant/q3_k.h"
#include "quant/q6_k.h"

namespace assay::quant::encode {

template <int sub, class L_, int low_scale, int high_scale>
struct SignedShape {
  static constexpr int kSub = sub, kCount = 256 / sub, kLow = low_scale, kHigh = high_scale;
  using Levels = L_;
};

// value = (d * scale[i]) * level
template <class Shape>
struct SignedChoice {
  float d = 0;
  float scale[Shape::kCount] = {};  // whole numbers
  float error = 0;
};

constexpr float kScaleSteps[16] = {0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, 8, 9};

template <class L, class Shape>
void choose_scales(const Values& v, SignedChoice<Shape>& c) noexcept {
  const L low = L::splat(static_cast<float>(Shape::kLow)), high = L::splat(static_cast<float>(Shape::kHigh));
  c.error = 0;
  for (int i = 0; i < Shape::kCount; ++i) {
    // Steps lead away from zero first.
    const L steps = L::splat(c.scale[i] < 0 ? -1.0f : 1.0f) * L::load(kScaleSteps);
    const L scale = L::min(L::max(L::splat(c.scale[i]) + steps, low), high);
    const Found found = best_of(
        scale_errors<L, typename Shape::Levels>(v.part(i * Shape::kSub, Shape::kSub), L::splat(c.d) * scale), scale);
    c.scale[i] = found.scale;
    c.error += found.error;
  }
}

template <class L, class Shape>
SignedChoice<Shape> refactored(const Values& v, const SignedChoice<Shape>& c) noexcept {
  float aa = 0, xa = 0;  // a = scale * level
  for (int i = 0; i < Shape::kCount; ++i) {
    const Values part = v.part(i * Shape::kSub, Shape::kSub);
    float q[Shape::kSub];
    levels_of<L, typename Shape::Levels>(part, c.d * c.scale[i], 0, q);
    L q2 = L::splat(0), xq = q2;
    for (int j = 0; j < Shape::kSub; j += L::kLanes) {
      const L level = L::load(q + j), wq = weights_at<L>(part, j) * level;
      q2 = q2 + wq * level;
      xq = xq + wq * L::load(part.x + j);
    }
    aa += c.scale[i] * c.scale[i] * fold(q2);
    xa += c.scale[i] * fold(xq);
  }
  SignedChoice<Shape> next = c;
  if (aa > 0) next.d = half_of<L>(xa / aa);
  return next;
}

struct SuperSearch {
  const float* first;  // null: the first scale of a sub-block is the one that puts its farthest weight on the end level
  float headroom;      // of the largest scale, so that there is a step above it
};

template <class L, class Shape>
SignedChoice<Shape> choose_signed(const Values& v, const SuperSearch& search, Effort effort) noexcept {
  SignedChoice<Shape> c;
  float farthest = 0;
  for (int i = 0; i < Shape::kCount; ++i) {
    const Values part = v.part(i * Shape::kSub, Shape::kSub);
    const Ends ends = ends_of<L>(part.x, Shape::kSub);
    if (ends.all_zero()) continue;
    c.scale[i] = ends.farthest() / static_cast<float>(Shape::Levels::kLow);
    if (search.first != nullptr) {
      const L scales = L::splat(c.scale[i]) * L::load(search.first);
      c.scale[i] = best_of(scale_errors<L, typename Shape::Levels>(part, scales), scales).scale;
    }
    const float magnitude = c.scale[i] < 0 ? -c.scale[i] : c.scale[i], largest = farthest < 0 ? -farthest : farthest;
    if (magnitude > largest) farthest = c.scale[i];
  }
  // The largest goes to the end of the integers that reaches farther.
  c.d = half_of<L>(farthest * search.headroom / static_cast<float>(Shape::kLow));
  const float inverse = inverse_of(c.d);
  for (float& scale : c.scale) scale = nearest_one<Steps<Shape::kLow, Shape::kHigh>>(scale * inverse);
  choose_scales<L>(v, c);
  const int rounds = effort == Effort::fast ? 0 : effort == Effort::normal ? 1 : 8;
  for (int round = 0; round < rounds; ++round) {
    SignedChoice<Shape> next = refactored<L>(v, c);
    choose_scales<L>(v, next);
    if (!(next.error < c.error)) break;
    c = next;
  }
  return c;
}

// The levels of a choice, and the factor to be stored with them.
template <class L, class Shape>
float take_signed_levels(const Values& v, const SignedChoice<Shape>& c, float* levels) noexcept {
  GainSums<L> sums;
  for (int i = 0; i < Shape::kCount; ++i) {
    const Values part = v.part(i * Shape::kSub, Shape::kSub);
    const float scale = c.d * c.scale[i];
    float* q = levels + i * Shape::kSub;
    levels_of<L, typename Shape::Levels>(part, scale, 0, q);
    if (!regains<typename Shape::Levels>(v)) continue;
    for (int j = 0; j < Shape::kSub; j += L::kLanes) sums.add(L::load(part.x + j), L::splat(scale) * L::load(q + j));
  }
  return regains<typename Shape::Levels>(v) ? half_of<L>(c.d * sums.gain()) : c.d;
}

template <class L>
struct SuperQ6_K {
  using Block = BlockQ6_K;
  using Shape = SignedShape<16, Steps<-32, 31>, -128, 127>;
  static Block encode(const Values& v, Effort effort) noexcept {
    const SignedChoice<Shape> c = choose_signed<L, Shape>(v, {nullptr, 1.05f}, effort);
    float q[256];
    Block b{};
    b.d = L::half_bits(take_signed_levels<L>(v, c, q));
    for (int i = 0; i < 16; ++i) b.sub_scales[i] = static_cast<int8_t>(c.scale[i]);
    for (int j = 0; j < 256; ++j) {
      const int level = static_cast<int>(q[j]) + 32, half = j / 128, i = j % 128;
      uint8_t& nibble = b.nibbles[64 * half + i % 64];
      uint8_t& high = b.high_bits[32 * half + i % 32];
      nibble = static_cast<uint8_t>(nibble | ((level & 15) << (i < 64 ? 0 : 4)));
      high = static_cast<uint8_t>(high | ((level >> 4) << (2 * (i / 32))));
    }
    return b;
  }
};

constexpr float kFirst3[16] = {0.70f, 0.76f,  0.82f,  0.88f, 0.94f, 1.0f,  1.06f, 1.14f,
                               1.24f, -0.80f, -0.90f, -1.0f, -1.1f, -1.2f, -1.3f, -1.45f};

template <class L>
struct SuperQ3_K {
  using Block = BlockQ3_K;
  using Shape = SignedShape<16, Steps<-4, 3>, -32, 31>;
  static Block encode(const Values& v, Effort effort) noexcept {
    float w[256];
    const Values weighed = v.w == nullptr ? large_weights_first<L>(v, LargeWeights::by_square, w) : v;
    const SignedChoice<Shape> c = choose_signed<L, Shape>(weighed, {kFirst3, 1.0f}, effort);
    float q[256];
    Block b{};
    b.d = L::half_bits(take_signed_levels<L>(v, c, q));
    for (int i = 0; i < 16; ++i) {
      const int scale = static_cast<int>(c.scale[i]) + 32;
      uint8_t& low = b.sub_scales[i % 8];
      uint8_t& high = b.sub_scales[8 + i % 4];
      low = static_cast<uint8_t>(low | ((scale & 15) << (i < 8 ? 0 : 4)));
      high = static_cast<uint8_t>(high | ((scale >> 4) << (2 * (i / 4))));
    }
    for (int j = 0; j < 256; ++j) {
      const int level = static_cast<int>(q[j]) + 4;
      uint8_t& low = b.q[32 * (j / 128) + j % 32];
      low = static_cast<uint8_t>(low | ((level & 3) << (2 * (j / 32 % 4))));
      b.high_bits[j % 32] = static_cast<uint8_t>(b.high_bits[j % 32] | ((level >> 2) << (j / 32)));
    }
    return b;
  }
};

template <class L>
struct SuperIq4Xs {
  using Block = BlockIQ4_XS;
  using Shape = SignedShape<32, Iq4Levels, -32, 31>;
  static Block encode(const Values& v, Effort effort) noexcept {
    const SignedChoice<Shape> c = choose_signed<L, Shape>(v, {kSearchIq4.first, 1.0f}, effort);
    float q[256];
    Block b{};
    b.d = L::half_bits(take_signed_levels<L>(v, c, q));
    for (int i = 0; i < 8; ++i) {
      const int scale = static_cast<int>(c.scale[i]) + 32;
      b.scales_low[i / 2] = static_cast<uint8_t>(b.scales_low[i / 2] | ((scale & 15) << (4 * (i % 2))));
      b.scales_high = static_cast<uint16_t>(b.scales_high | ((scale >> 4) << (2 * i)));
    }
    for (int j = 0; j < 256; ++j) {
      uint8_t& byte = b.nibbles[16 * (j / 32) + j % 16];
      byte = static_cast<uint8_t>(byte | (Iq4Levels::index(q[j]) << (j % 32 < 16 ? 0 : 4)));
    }
    return b;
  }
};

}  // namespace assay::quant::encode
