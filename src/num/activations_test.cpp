// How far the activation functions are from the true ones, over samples of every range: the figures of
// docs/numerics.md, section 4.
#include "num/activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay::num {
namespace {

constexpr int kSamples = 20000;

template <class Function, class Truth>
double worst_ulp(Function function, Truth truth, double low, double high) {
  double worst = 0;
  for (int i = 0; i <= kSamples; ++i) {
    const auto x = static_cast<float>(low + (high - low) * i / kSamples);
    const double expected = truth(static_cast<double>(x)), found = static_cast<double>(function(x));
    const double ulp = std::ldexp(1.0, std::max(-149, std::ilogb(expected) - 23));
    worst = std::max(worst, std::abs(found - expected) / ulp);
  }
  return worst;
}

TEST(Activations, GeluByTheErrorFunctionIsGoodToSevenUlp) {
  const auto truth = [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); };
  for (const auto& [low, high] :
       {std::pair(1e-4, 10.0), std::pair(-1.0, -1e-4), std::pair(-5.0, -1.0), std::pair(-13.0, -5.0)}) {
    EXPECT_LT(worst_ulp(gelu_erf, truth, low, high), 7.0) << low << " to " << high;
  }
}

TEST(Activations, SoftplusAndSigmoidAreGoodToThreeUlp) {
  const auto softplus_of = [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); };
  const auto sigmoid_of = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (const auto& [low, high] : {std::pair(-80.0, -1.0), std::pair(-1.0, 1.0), std::pair(1.0, 80.0)}) {
    EXPECT_LT(worst_ulp(softplus, softplus_of, low, high), 3.0) << low << " to " << high;
    EXPECT_LT(worst_ulp(sigmoid, sigmoid_of, low, high), 3.0) << low << " to " << high;
  }
}

TEST(Activations, EndsAndPoison) {
  EXPECT_EQ(gelu_erf(1e20f), 1e20f);
  EXPECT_EQ(gelu_erf(-1e20f), 0.0f);
  EXPECT_EQ(relu_squared(-3.0f), 0.0f);
  EXPECT_EQ(relu_squared(3.0f), 9.0f);
  EXPECT_EQ(softplus(1e20f), 1e20f);
  EXPECT_EQ(softplus(-1e20f), 0.0f);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto function : {gelu_erf, relu_squared, softplus, sigmoid}) EXPECT_TRUE(std::isnan(function(kNan)));
}

}  // namespace
}  // namespace assay::num
