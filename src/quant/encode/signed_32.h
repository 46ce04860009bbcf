// Formats of 32 weights around zero with one half-precision scale: Q4_0, Q5_0, Q8_0, IQ4_NL. Eight scales around the
// one that puts the farthest weight on the end level (sixteen where errors are weighted): of the levels that each
// gives, those that fit best by least squares, and their fit. The best effort has sixteen, and more around the best of
// them, eight times.
#pragma once

#include "quant/encode/gain.h"
#include "quant/iq4_nl.h"
#include "quant/q4_0.h"
#include "quant/q5_0.h"
#include "quant/q8_0.h"

namespace assay::quant::encode {

// few: factors of the eight scales, on d = farthest / end; a negative one puts the farthest weight on the other side.
// first: of the sixteen. second: the spread of the next sixteen, narrowed each round.
struct SignedSearch {
  float few[8];
  float first[16];
  float second;
};

template <class L, class Levels>
Found find_scale(const Values& v, float unit, const SignedSearch& search, Effort effort) noexcept {
  if (effort != Effort::best) {
    using Narrow = typename L::Narrow;
    const bool few = v.w == nullptr || effort == Effort::fast;
    Found found;
    found.scale = half_of<L>(few ? fitted_scale<Narrow, Levels>(v, Narrow::splat(unit) * Narrow::load(search.few))
                                 : fitted_scale<L, Levels>(v, L::splat(unit) * L::load(search.first)));
    return found;
  }
  const L first = within_half(L::splat(unit) * L::load(search.first));
  Found best = best_of(scale_errors<L, Levels>(v, first), first);
  const L fit = L::splat(half_of<L>(fitted_scale<L, Levels>(v, L::splat(unit) * L::load(search.first))));
  if (const Found found = best_of(scale_errors<L, Levels>(v, fit), fit); found.error < best.error) best = found;
  float spread = search.second;
  for (int round = 1; round < 8; ++round, spread *= 0.7f) {
    const L next = within_half(around<L>(refitted_scale<L, Levels>(v, best.scale), spread));
    const Found found = best_of(scale_errors<L, Levels>(v, next), next);
    if (found.error < best.error) best = found;
  }
  best.error = scale_error<L, Levels>(v, best.scale);
  for (int i = 0; i < 2; ++i) {
    const float scale = half_of<L>(refitted_scale<L, Levels>(v, best.scale));
    const float error = scale_error<L, Levels>(v, scale);
    if (!(error < best.error)) break;
    best.scale = scale;
    best.error = error;
  }
  return best;
}

constexpr SignedSearch kSearch4 = {{0.85f, 0.91f, 0.96f, 1.0f, 1.05f, 1.11f, -1.02f, -1.12f},
                                   {0.80f, 0.83f, 0.86f, 0.89f, 0.92f, 0.95f, 0.975f, 1.0f, 1.03f, 1.06f, 1.09f, 1.13f,
                                    -0.98f, -1.04f, -1.10f, -1.143f},
                                   0.003f};
constexpr SignedSearch kSearch5 = {
    {0.92f, 0.95f, 0.975f, 1.0f, 1.03f, -0.99f, -1.03f, -1.07f},
    {0.88f, 0.90f, 0.92f, 0.94f, 0.96f, 0.98f, 1.0f, 1.02f, 1.04f, 1.06f, 1.08f, 1.10f, -1.0f, -1.03f, -1.06f, -1.09f},
    0.002f};
constexpr SignedSearch kSearch8 = {{1.0f, 1.005f, 1.010f, 1.015f, 1.02f, 1.025f, 1.03f, 1.035f},
                                   {1.0f, 0.998f, 1.004f, 1.008f, 1.012f, 1.016f, 1.02f, 1.024f, 1.028f, 1.032f, 1.036f,
                                    1.04f, 1.045f, 1.05f, 1.055f, 1.06f},
                                   0.0004f};
constexpr SignedSearch kSearchIq4 = {{0.83f, 0.89f, 0.95f, 1.0f, 1.05f, -0.85f, -0.95f, -1.06f},
                                     {0.80f, 0.83f, 0.86f, 0.89f, 0.92f, 0.95f, 0.975f, 1.0f, 1.03f, 1.07f, -0.80f,
                                      -0.86f, -0.92f, -0.98f, -1.04f, -1.12f},
                                     0.003f};

// The levels that a scale gives to 32 elements, and the scale to be stored with them.
template <class L, class Levels>
float take_levels(const Values& v, float scale, float* q) noexcept {
  levels_of<L, Levels>(v, scale, 0, q);
  if (!regains<Levels>(v)) return scale;
  GainSums<L> sums;
  for (int j = 0; j < 32; j += L::kLanes) sums.add(L::load(v.x + j), L::splat(scale) * L::load(q + j));
  return half_of<L>(scale * sums.gain());
}

template <class L>
struct SignedQ4_0 {
  using Block = BlockQ4_0;
  static Block encode(const Values& v, Effort effort) noexcept {
    Block b{};
    const Ends ends = ends_of<L>(v.x, 32);
    const Found found =
        ends.all_zero() ? Found{} : find_scale<L, Steps<-8, 7>>(v, ends.farthest() / -8, kSearch4, effort);
    float q[32];
    b.d = L::half_bits(take_levels<L, Steps<-8, 7>>(v, found.scale, q));
    for (int j = 0; j < 16; ++j)
      b.nibbles[j] = static_cast<uint8_t>((static_cast<int>(q[j]) + 8) | ((static_cast<int>(q[j + 16]) + 8) << 4));
    return b;
  }
};

template <class L>
struct SignedQ5_0 {
  using Block = BlockQ5_0;
  static Block encode(const Values& v, Effort effort) noexcept {
    Block b{};
    const Ends ends = ends_of<L>(v.x, 32);
    const Found found =
        ends.all_zero() ? Found{} : find_scale<L, Steps<-16, 15>>(v, ends.farthest() / -16, kSearch5, effort);
    float q[32];
    b.d = L::half_bits(take_levels<L, Steps<-16, 15>>(v, found.scale, q));
    uint8_t levels[32];
    for (int j = 0; j < 32; ++j) levels[j] = static_cast<uint8_t>(static_cast<int>(q[j]) + 16);
    pack_5_bits(levels, b.nibbles, b.high_bits);
    return b;
  }
};

template <class L>
struct SignedQ8_0 {
  using Block = BlockQ8_0;
  static Block encode(const Values& v, Effort effort) noexcept {
    Block b{};
    const Ends ends = ends_of<L>(v.x, 32);
    const float amax = -ends.low > ends.high ? -ends.low : ends.high;
    const Found found = amax == 0 ? Found{} : find_scale<L, Steps<-127, 127>>(v, amax / 127, kSearch8, effort);
    float q[32];
    b.d = L::half_bits(take_levels<L, Steps<-127, 127>>(v, found.scale, q));
    for (int j = 0; j < 32; ++j) b.q[j] = static_cast<int8_t>(q[j]);
    return b;
  }
};

template <class L>
struct SignedIq4Nl {
  using Block = BlockIQ4_NL;
  static Block encode(const Values& v, Effort effort) noexcept {
    Block b{};
    const Ends ends = ends_of<L>(v.x, 32);
    const Found found =
        ends.all_zero() ? Found{} : find_scale<L, Iq4Levels>(v, ends.farthest() / -127, kSearchIq4, effort);
    float q[32];
    b.d = L::half_bits(take_levels<L, Iq4Levels>(v, found.scale, q));
    for (int j = 0; j < 16; ++j)
      b.nibbles[j] = static_cast<uint8_t>(Iq4Levels::index(q[j]) | (Iq4Levels::index(q[j + 16]) << 4));
    return b;
  }
};

}  // namespace assay::quant::encode
