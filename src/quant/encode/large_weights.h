// Errors of large weights counted more, for formats of so few levels that the smallest error leaves large weights far
// off: of those the products that matter are made, so the divergence falls by more than the plain error rises
// (docs/lab/2026-11-28-quantize.md).
#pragma once

#include <cmath>

#include "quant/encode/search.h"

namespace assay::quant::encode {

enum class LargeWeights {
  by_square,  // 1 + x^2 / (mean x^2)
  by_root,    // the root of 2 + x^2 / (mean x^2)
};

// A superblock whose errors are weighed so as well; w holds its weights.
template <class L>
Values large_weights_first(const Values& v, LargeWeights how, float (&w)[256]) noexcept {
  L squares = L::splat(0);
  for (int j = 0; j < 256; j += L::kLanes) squares = squares + L::load(v.x + j) * L::load(v.x + j);
  const float one_over = inverse_of(fold(squares) / 256);
  if (!(one_over > 0x1p-100f && one_over < 0x1p100f)) return v;  // squares near an end of float32
  const L least = L::splat(how == LargeWeights::by_square ? 1.0f : 2.0f);
  for (int j = 0; j < 256; j += L::kLanes) {
    const L x = L::load(v.x + j);
    (least + x * x * L::splat(one_over)).store(w + j);
  }
  if (how == LargeWeights::by_root) {
    for (float& factor : w) factor = std::sqrt(factor);
  }
  if (v.w == nullptr) return {v.x, w, v.n};
  for (int j = 0; j < 256; j += L::kLanes) (weights_at<L>(v, j) * L::load(w + j)).store(w + j);
  return {v.x, w, v.n};
}

}  // namespace assay::quant::encode
