// The order of a float sum as a type, so that it cannot drift (numerics contract, section 3). Element j goes to lane j
// % 32 by one fma, j ascending; the lanes fold 16, 8, 4, 2, 1. It is 8 registers of NEON, 4 of AVX2, 2 of AVX-512 or
// one warp.
#pragma once

#include <cmath>
#include <cstdint>

#include "num/device.h"

namespace assay::num {

ASSAY_FN float fma(float a, float b, float c) noexcept { return std::fma(a, b, c); }

struct Lanes32 {
  float lane[32] = {};

  void fma(int64_t j, float a, float b) noexcept {
    float& sum = lane[j & 31];
    sum = num::fma(a, b, sum);
  }
  void add(int64_t j, float a) noexcept { lane[j & 31] += a; }
  float fold() const noexcept {  // does not change the lanes
    float part[16];
    for (int i = 0; i < 16; ++i) part[i] = lane[i] + lane[i + 16];
    for (int width = 8; width >= 1; width /= 2) {
      for (int i = 0; i < width; ++i) part[i] = part[i] + part[i + width];
    }
    return part[0];
  }
};

}  // namespace assay::num
