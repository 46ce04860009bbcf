// What least squares takes from a block's length, given back.
//
// Of all y that a choice of levels allows, least squares takes the one with <x, y> = <y, y>: shorter along x by the
// square of what is lost, in every block, so what the matrix passes on shrinks. A block's factors are therefore stored
// <x, x> / <x, y> times as large, its levels kept: then its projection on x is as long as x. Of all y of that
// projection it is the nearest to x as well, for least squares had chosen the direction that is nearest.
#pragma once

#include "quant/encode/search.h"

namespace assay::quant::encode {

// Beyond these a block has nothing left that could be given back.
constexpr float kGainMost = 2, kGainLeast = 0.5f;

// xx: <x, x>; xy: <x, y>. 1 where nothing of the block is left.
ASSAY_FN float gain_of_products(float xx, float xy) noexcept {
  if (!(xy > 0)) return 1;
  const float gain = xx / xy;
  return gain < kGainLeast ? kGainLeast : gain < kGainMost ? gain : kGainMost;
}

// Sums over a block, element j in lane j % 16.
template <class L>
struct GainSums {
  L xx = L::splat(0), xy = L::splat(0);
  void add(const L& x, const L& y) noexcept {
    xx = xx + x * x;
    xy = xy + x * y;
  }
  float gain() const noexcept { return gain_of_products(fold(xx), fold(xy)); }
};

// Whether a block's gain is given back; measured in docs/lab/2026-11-28-quantize.md. Blocks of more levels lose too
// little of it. Where errors are weighed a few columns decide it, and giving it back costs the others more.
template <class Levels>
ASSAY_FN bool regains(const Values& v) noexcept {
  return Levels::kCount <= 16 && v.w == nullptr;
}

}  // namespace assay::quant::encode
