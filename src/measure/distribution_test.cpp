// Statistics of small samples; the expected figures are numpy's (mean, std(ddof=1) / sqrt(n), percentile).
#include "measure/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace assay::measure {
namespace {

TEST(Distribution, OfNothingIsZeroAndOfOneValueIsThatValue) {
  EXPECT_EQ(distribution_of({}).mean, 0);
  const Distribution one = distribution_of({-2.5});
  EXPECT_EQ(one.mean, -2.5);
  EXPECT_EQ(one.standard_error, 0);
  EXPECT_EQ(one.rms, 2.5);
  EXPECT_EQ(one.smallest, -2.5);
  EXPECT_EQ(one.p99_9, -2.5);
  EXPECT_EQ(one.largest, -2.5);
}

TEST(Distribution, FollowsNumpy) {
  const Distribution d = distribution_of({4, -1, 3, 0.5, 10, -7, 2});
  EXPECT_NEAR(d.mean, 1.6428571428571428, 1e-14);
  EXPECT_NEAR(d.standard_error, 1.9539772800327935, 1e-13);
  EXPECT_NEAR(d.rms, 5.060350072588147, 1e-14);
  EXPECT_NEAR(d.rms_error, 1.3776611662169225, 1e-13);
  EXPECT_EQ(d.smallest, -7);
  EXPECT_NEAR(d.p0_1, -6.964, 1e-12);
  EXPECT_NEAR(d.p1, -6.64, 1e-12);
  EXPECT_NEAR(d.p10, -3.4, 1e-12);
  EXPECT_EQ(d.median, 2);
  EXPECT_NEAR(d.p90, 6.4, 1e-12);
  EXPECT_NEAR(d.p99, 9.64, 1e-12);
  EXPECT_NEAR(d.p99_9, 9.964, 1e-12);
  EXPECT_EQ(d.largest, 10);
  EXPECT_EQ(distribution_of({1, 2, 3, 10}).median, 2.5);
}

// llama-perplexity's way to the same standard error: from the sum and the sum of squares.
TEST(Distribution, StandardErrorIsThatOfTheSums) {
  const std::vector<double> values = {0.3, 1.7, 2.2, 0.9, 5.5, 0.01};
  double sum = 0, squares = 0;
  for (const double x : values) sum += x, squares += x * x;
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(mean_of(values).standard_error, std::sqrt((squares / n - sum / n * (sum / n)) / (n - 1)), 1e-14);
}

TEST(Distribution, ANanSpoilsAllAndAnInfinityTheMean) {
  const Distribution bad = distribution_of({1, std::nan(""), 2});
  EXPECT_TRUE(std::isnan(bad.mean));
  EXPECT_TRUE(std::isnan(bad.median));
  EXPECT_TRUE(std::isnan(bad.largest));
  const Distribution d = distribution_of({1, std::numeric_limits<double>::infinity(), 2});
  EXPECT_TRUE(std::isinf(d.mean));
  EXPECT_EQ(d.median, 2);
}

}  // namespace
}  // namespace assay::measure
