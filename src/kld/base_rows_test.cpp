#include "kld/base_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/random_numbers.h"

namespace assay::kld {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// By the definition, in long double.
double plain_divergence(const std::vector<float>& a, const std::vector<float>& b) {
  long double a_sum = 0, b_sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    a_sum += std::exp(static_cast<long double>(a[i])), b_sum += std::exp(static_cast<long double>(b[i]));
  long double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const long double p = std::exp(static_cast<long double>(a[i])) / a_sum,
                      q = std::exp(static_cast<long double>(b[i])) / b_sum;
    if (p != 0) sum += p * std::log(p / q);
  }
  return static_cast<double>(sum);
}

TEST(BaseRows, IsTheDivergenceOfTheDefinition) {
  test::Random random(7);
  for (const float spread : {1e-5f, 1e-3f, 0.1f, 3.0f}) {
    std::vector<float> a(1001), b(1001);
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = 8 * static_cast<float>(random.uniform()) - 20 * static_cast<float>(i % 3);
      b[i] = a[i] + spread * static_cast<float>(random.uniform());
    }
    BaseRows rows(2, 1001);
    ASSERT_TRUE(rows.set(1, a));
    const double expected = plain_divergence(a, b);
    EXPECT_NEAR(rows.divergence(1, b), expected, 1e-6 * expected + 1e-15) << spread;
    EXPECT_LT(rows.divergence(1, a), 1e-14);
  }
}

TEST(BaseRows, LogitsThatAreNoNumbers) {
  BaseRows rows(2, 3);
  EXPECT_FALSE(rows.set(0, std::vector<float>{1, kInfinity, 0}));
  EXPECT_FALSE(rows.set(0, std::vector<float>{1, std::nanf(""), 0}));
  EXPECT_FALSE(rows.set(0, std::vector<float>{-kInfinity, -kInfinity, -kInfinity}));
  ASSERT_TRUE(rows.set(0, std::vector<float>{1, -kInfinity, 0}));
  EXPECT_TRUE(std::isnan(rows.divergence(0, std::vector<float>{1, std::nanf(""), 0})));
  EXPECT_NEAR(rows.divergence(0, std::vector<float>{1, -kInfinity, 0}), 0, 1e-14) << "what neither allows";
  EXPECT_NEAR(rows.divergence(0, std::vector<float>{1, 0, 0}), std::log(1 + 1 / (1 + std::exp(1.0))), 1e-7);
  const double p = 1 / (1 + std::exp(-1.0));  // of the first token
  EXPECT_NEAR(rows.divergence(0, std::vector<float>{-999, 0, -1000}),
              p * 999 + (1 - p) * 1000 + p * std::log(p) + (1 - p) * std::log(1 - p), 1e-3);
  EXPECT_NEAR(rows.divergence(0, std::vector<float>{-999, -kInfinity, -1000}), 0, 1e-4) << "all of it shifted";
  EXPECT_TRUE(std::isinf(rows.divergence(0, std::vector<float>{1, 0, -kInfinity})))
      << "what the base allows is ruled out";
}

}  // namespace
}  // namespace assay::kld
