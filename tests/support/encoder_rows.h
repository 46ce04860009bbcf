// Rows of weights, and weights of their errors, on which encoders are held against others.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/random_numbers.h"

namespace assay::test {

inline constexpr int64_t kEncoderColumns = 512;

inline std::vector<float> normal_row(uint64_t seed, float scale = 0.02f) {
  Random random(seed);
  std::vector<float> x(kEncoderColumns);
  for (float& value : x) value = scale * random.normal() * (random.below(100) == 0 ? 5.0f : 1.0f);
  return x;
}

inline std::vector<float> weights_row(uint64_t seed) {
  Random random(seed);
  std::vector<float> w(kEncoderColumns);
  for (float& value : w) value = std::exp(2 * random.normal());
  for (int j = 0; j < 7; ++j) w[static_cast<size_t>(random.below(static_cast<int>(kEncoderColumns)))] = 0;
  return w;
}

}  // namespace assay::test
