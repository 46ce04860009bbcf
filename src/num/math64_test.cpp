// Our double functions against libm in long double (64 bits of mantissa), over the ranges that RoPE and the oracle use.
#include "num/math64.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/random_numbers.h"

namespace assay::num {
namespace {

constexpr double kInfinity64 = std::numeric_limits<double>::infinity();

double ulps(double ours, long double truth) {
  const int exponent = truth == 0 ? -1022 : std::ilogb(truth);
  const long double ulp = std::ldexp(1.0L, std::max(exponent, -1022) - 52);
  return static_cast<double>(std::fabs(static_cast<long double>(ours) - truth) / ulp);
}

double uniform(test::Random& random, double low, double high) {
  return low + (high - low) * (static_cast<double>(random.next() >> 11) * 0x1p-53);
}

TEST(Math64, Exp) {
  test::Random random(1);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double range = i % 2 == 0 ? 1.0 : 700.0;
    const double x = uniform(random, -range, range);
    worst = std::max(worst, ulps(exp64(x), std::exp(static_cast<long double>(x))));
  }
  for (double x = -745; x < -708; x += 0.013)
    worst = std::max(worst, ulps(exp64(x), std::exp(static_cast<long double>(x))));
  EXPECT_LE(worst, 1.0);
  RecordProperty("ulp_max", std::to_string(worst));
  EXPECT_EQ(exp64(0), 1);
  EXPECT_EQ(exp64(-kInfinity64), 0);
  EXPECT_EQ(exp64(kInfinity64), kInfinity64);
  EXPECT_EQ(exp64(-746), 0);
  EXPECT_EQ(exp64(710), kInfinity64);
  EXPECT_TRUE(std::isnan(exp64(std::nan(""))));
}

TEST(Math64, ManyExponentialsAreEachAlone) {
  std::vector<float> x = {
      0.0f,    -0.0f,  -std::numeric_limits<float>::infinity(), 709.5f, 711.0f, 3e38f, -3e38f, 1e-40f, -744.9f,
      -745.5f, -746.5f};
  for (int i = 0; i < 20'000; ++i) x.push_back(static_cast<float>(i % 1000 - 700) + static_cast<float>(i) * 1.7e-4f);
  for (const double minus : {0.0, 12.3456789, -3.0}) {
    for (const size_t n : {size_t{0}, size_t{1}, size_t{7}, size_t{9}, x.size()}) {
      std::vector<double> y(n);
      exp64_less(std::span(x).first(n), minus, y);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(std::bit_cast<uint64_t>(y[i]), std::bit_cast<uint64_t>(exp64(static_cast<double>(x[i]) - minus)))
            << x[i] << " - " << minus;
      }
    }
  }
}

TEST(Math64, Log) {
  test::Random random(2);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x =
        i % 2 == 0 ? uniform(random, 0.5, 2) : std::ldexp(uniform(random, 1, 2), random.below(2000) - 1000);
    worst = std::max(worst, ulps(log64(x), std::log(static_cast<long double>(x))));
  }
  EXPECT_LE(worst, 1.0);
  RecordProperty("ulp_max", std::to_string(worst));
  EXPECT_EQ(log64(1), 0);
  EXPECT_EQ(log64(0), -kInfinity64);
  EXPECT_EQ(log64(kInfinity64), kInfinity64);
  EXPECT_TRUE(std::isnan(log64(-1)));
  EXPECT_LE(ulps(log64(0x1p-1074), std::log(0x1p-1074L)), 1.0);
}

TEST(Math64, Pow) {
  test::Random random(3);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = std::exp(uniform(random, -5, 20)), y = uniform(random, -2, 2);
    worst = std::max(worst, ulps(pow64(x, y), std::pow(static_cast<long double>(x), static_cast<long double>(y))));
  }
  for (const double theta : {10000.0, 500000.0, 1000000.0}) {
    for (int i = 0; i < 128; ++i) {
      worst = std::max(worst, ulps(pow64(theta, -i / 128.0), std::pow(static_cast<long double>(theta), -i / 128.0L)));
    }
  }
  EXPECT_LE(worst, 1.5);
  RecordProperty("ulp_max", std::to_string(worst));
  EXPECT_EQ(pow64(10000, 0), 1);
  EXPECT_EQ(pow64(10000, 1), 10000);
  EXPECT_EQ(pow64(10, 400), kInfinity64);
  EXPECT_EQ(pow64(10, -400), 0);
  EXPECT_TRUE(std::isnan(pow64(-1, 0.5)));
}

TEST(Math64, SinAndCosOfEveryPosition) {
  test::Random random(4);
  double worst = 0;
  const auto check = [&](double x) {
    worst = std::max(worst, ulps(sin64(x), std::sin(static_cast<long double>(x))));
    worst = std::max(worst, ulps(cos64(x), std::cos(static_cast<long double>(x))));
  };
  for (int i = 0; i < 100000; ++i) check(uniform(random, -8, 8));
  for (int i = 0; i < 100000; ++i) check(uniform(random, 0, i % 2 == 0 ? 0x1p20 : 0x1p31));
  for (int i = 0; i < 1000000; i += 7) check(i);                   // whole positions, the first pair of every RoPE
  for (int i = 0; i < 2000; ++i) check(i * 0x1.921fb54442d18p+0);  // beside the zeros
  EXPECT_LE(worst, 0.8);
  RecordProperty("ulp_max", std::to_string(worst));
  EXPECT_EQ(sin64(0), 0);
  EXPECT_TRUE(std::signbit(sin64(-0.0)));
  EXPECT_EQ(cos64(0), 1);
  EXPECT_TRUE(std::isnan(sin64(1e10)));
  EXPECT_TRUE(std::isnan(cos64(kInfinity64)));
}

TEST(Math64, Tanh) {
  test::Random random(5);
  double worst = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = uniform(random, -1, 1) * (i % 2 == 0 ? 1 : 25);
    worst = std::max(worst, ulps(tanh64(x), std::tanh(static_cast<long double>(x))));
  }
  EXPECT_LE(worst, 2.5);
  RecordProperty("ulp_max", std::to_string(worst));
  EXPECT_EQ(tanh64(kInfinity64), 1);
  EXPECT_TRUE(std::signbit(tanh64(-0.0)));
}

}  // namespace
}  // namespace assay::num
