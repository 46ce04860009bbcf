// The oracle's parts against loops that are plainer still: the blocked matrix product by bits, attention and rotation
// to the last digits.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/oracle/matrix.h"
#include "backend/oracle/oracle_ops.h"
#include "ops/plan/float64.h"
#include "ops/rows/activation.h"
#include "quant/format.h"
#include "support/random_weights.h"

namespace assay::backend::oracle {
namespace {

std::vector<double> random_doubles(int64_t n, uint64_t seed) {
  test::Random random(seed);
  std::vector<double> x(static_cast<size_t>(n));
  for (double& value : x) value = static_cast<double>(random.normal()) / 3;  // no exact products
  return x;
}

TEST(MatrixProduct, EveryOutputIsOneSumInOrder) {
  struct Case {
    int64_t n_tokens, k, n_rows;
    int n_threads;
  };
  for (const auto& [n_tokens, k, n_rows, n_threads] :
       {Case{1, 1, 1, 1}, {15, 7, 3, 2}, {16, 32, 33, 1}, {17, 33, 64, 2}, {40, 95, 70, 3}}) {
    const std::vector<double> x = random_doubles(n_tokens * k, 1), bias = random_doubles(n_rows, 2);
    std::vector<float> w(static_cast<size_t>(n_rows * k));
    test::Random random(3);
    for (float& value : w) value = random.normal();
    base::ThreadPool pool(n_threads);
    MatrixProduct product(n_tokens, k, n_threads);
    for (const bool with_bias : {false, true}) {
      std::vector<double> y(static_cast<size_t>(n_tokens * n_rows));
      const std::span<const double> shift = with_bias ? std::span<const double>(bias) : std::span<const double>();
      product.run(
          x.data(), n_tokens, k, n_rows, [&](int64_t row, float* out) { std::copy_n(w.data() + row * k, k, out); },
          shift, y.data(), pool);
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t r = 0; r < n_rows; ++r) {
          double sum = 0;
          for (int64_t i = 0; i < k; ++i)
            sum += x[static_cast<size_t>(t * k + i)] * static_cast<double>(w[static_cast<size_t>(r * k + i)]);
          sum += with_bias ? bias[static_cast<size_t>(r)] : 0.0;
          EXPECT_EQ(y[static_cast<size_t>(t * n_rows + r)], sum)
              << n_tokens << " x " << k << " x " << n_rows << " at " << t << ", " << r;
        }
      }
    }
  }
}

TEST(OracleOps, AttendIsSoftmaxOverTheRange) {
  constexpr int64_t kHeadDim = 6, kStride = 17, kPositions = 40;
  const std::vector<double> q = random_doubles(kHeadDim, 1), k = random_doubles(kPositions * kStride, 2),
                            v = random_doubles(kPositions * kStride, 3);
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 0}, {0, 7}, {0, 8}, {3, 39}, {12, 13}}) {
    std::vector<double> shares(kPositions), y(kHeadDim), expected(kHeadDim, 0.0);
    attend(q, {k.data() + 2, kStride, v.data() + 5, kStride}, first, last, {0.7}, shares, y);
    double sum = 0, of_shares = 0;
    for (int64_t p = first; p <= last; ++p) {
      double score = 0;
      for (int64_t d = 0; d < kHeadDim; ++d)
        score += q[static_cast<size_t>(d)] * k[static_cast<size_t>(p * kStride + 2 + d)];
      const double weight = std::exp(0.7 * score);
      sum += weight;
      for (int64_t d = 0; d < kHeadDim; ++d)
        expected[static_cast<size_t>(d)] += weight * v[static_cast<size_t>(p * kStride + 5 + d)];
      of_shares += shares[static_cast<size_t>(p - first)];
    }
    EXPECT_NEAR(of_shares, 1, 1e-14);
    for (size_t d = 0; d < y.size(); ++d) EXPECT_NEAR(y[d], expected[d] / sum, 1e-14) << first << ".." << last;
  }
}

TEST(OracleOps, RotateTurnsPairsAndPassesTheRestThrough) {
  ops::RopeSpec spec;
  spec.dim = 4;
  spec.inverse_frequency = {1.0, 0.25};
  spec.magnitude = 1.5;
  for (const bool interleaved : {true, false}) {
    spec.interleaved = interleaved;
    const std::vector<double> x = random_doubles(2 * 6, 5);
    std::vector<double> y(x.size()), in_place = x;
    ops::rotate64(spec, 3, 2, 6, x, y);
    ops::rotate64(spec, 3, 2, 6, in_place, in_place);
    EXPECT_EQ(y, in_place);
    for (size_t head = 0; head < 12; head += 6) {
      for (size_t pair = 0; pair < 2; ++pair) {
        const size_t a = head + (interleaved ? 2 * pair : pair), b = head + (interleaved ? 2 * pair + 1 : pair + 2);
        const double angle = 3 * spec.inverse_frequency[pair];
        EXPECT_NEAR(y[a], 1.5 * (x[a] * std::cos(angle) - x[b] * std::sin(angle)), 1e-15);
        EXPECT_NEAR(y[b], 1.5 * (x[a] * std::sin(angle) + x[b] * std::cos(angle)), 1e-15);
      }
      EXPECT_EQ(y[head + 4], x[head + 4]);
      EXPECT_EQ(y[head + 5], x[head + 5]);
    }
  }
}

TEST(OracleOps, ActivationsKeepTheirDigitsFarBelowZero) {
  EXPECT_NEAR(ops::silu64(-30.0), -30 * std::exp(-30.0), 1e-24);
  EXPECT_NEAR(ops::gelu_tanh64(2.0) - ops::gelu_tanh64(-2.0), 2.0, 1e-15);
  const double u = std::sqrt(2 / 3.14159265358979323846) * (6 + 0.044715 * 216);
  EXPECT_NEAR(ops::gelu_tanh64(-6.0) / (-6 * std::exp(-2 * u)), 1, 1e-8);
}

}  // namespace
}  // namespace assay::backend::oracle
