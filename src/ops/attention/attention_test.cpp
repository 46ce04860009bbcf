// The reference of attention against softmax in double, and the cache's types against what their definition says.
#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "num/f16.h"
#include "support/random_weights.h"

namespace assay::ops {
namespace {

std::vector<float> values(int64_t n, uint64_t seed) {
  test::Random random(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = random.normal();
  return x;
}

std::vector<double> attention_in_double(const std::vector<float>& q, const std::vector<float>& keys,
                                        const std::vector<float>& v, int64_t first, int64_t last, double scale) {
  const size_t head_dim = q.size();
  std::vector<double> y(head_dim, 0.0);
  double sum = 0.0;
  for (auto t = static_cast<size_t>(first); t <= static_cast<size_t>(last); ++t) {
    double score = 0.0;
    for (size_t j = 0; j < head_dim; ++j)
      score += static_cast<double>(q[j]) * static_cast<double>(keys[t * head_dim + j]);
    const double p = std::exp(score * scale);
    sum += p;
    for (size_t j = 0; j < head_dim; ++j) y[j] += p * static_cast<double>(v[t * head_dim + j]);
  }
  for (double& value : y) value /= sum;
  return y;
}

TEST(Attention, IsSoftmaxOverTheVisibleKeys) {
  constexpr int64_t kHeadDim = 24, kPositions = 800;
  const auto q = values(kHeadDim, 1), keys = values(kHeadDim * kPositions, 2), v = values(kHeadDim * kPositions, 3);
  const std::pair<int64_t, int64_t> ranges[] = {{0, 0},     {0, 1},     {0, 255},   {0, 256},  {0, 799},
                                                {255, 256}, {300, 600}, {511, 512}, {700, 799}};
  for (const auto& [first, last] : ranges) {
    std::vector<float> y(kHeadDim);
    attention_ref(q.data(), {keys.data(), kPositions, kHeadDim, kHeadDim}, {v.data(), kPositions, kHeadDim, kHeadDim},
                  first, last, {0.4f}, y.data());
    const auto expected = attention_in_double(q, keys, v, first, last, static_cast<double>(0.4f));
    for (size_t j = 0; j < y.size(); ++j)
      EXPECT_NEAR(static_cast<double>(y[j]), expected[j], 2e-6) << first << ".." << last;
  }
}

TEST(Attention, WindowAndFirstVisible) {
  EXPECT_EQ(first_visible(10, 0), 0);
  EXPECT_EQ(first_visible(10, 11), 0);
  EXPECT_EQ(first_visible(10, 10), 1);  // 10 keys: 1 .. 10
  EXPECT_EQ(first_visible(10, 1), 10);
  EXPECT_EQ(first_visible(0, 1), 0);
}

TEST(Attention, MaskedKeysAddNothing) {
  constexpr int64_t kHeadDim = 8, kPositions = 40;
  const auto q = values(kHeadDim, 1);
  auto keys = values(kHeadDim * kPositions, 2), v = values(kHeadDim * kPositions, 3);
  std::vector<float> y(kHeadDim), again(kHeadDim);
  attention_ref(q.data(), {keys.data(), kPositions, kHeadDim, kHeadDim}, {v.data(), kPositions, kHeadDim, kHeadDim}, 5,
                30, {1.0f}, y.data());
  for (const int64_t masked : {4, 31}) {
    for (int64_t j = 0; j < kHeadDim; ++j)
      keys[static_cast<size_t>(masked * kHeadDim + j)] = v[static_cast<size_t>(masked * kHeadDim + j)] = NAN;
  }
  attention_ref(q.data(), {keys.data(), kPositions, kHeadDim, kHeadDim}, {v.data(), kPositions, kHeadDim, kHeadDim}, 5,
                30, {1.0f}, again.data());
  EXPECT_EQ(y, again);
}

TEST(Attention, PoisonReachesEveryOutput) {
  constexpr int64_t kHeadDim = 8, kPositions = 300;
  const auto q = values(kHeadDim, 1), v = values(kHeadDim * kPositions, 3);
  auto keys = values(kHeadDim * kPositions, 2);
  keys[7 * kHeadDim + 3] = NAN;
  std::vector<float> y(kHeadDim);
  attention_ref(q.data(), {keys.data(), kPositions, kHeadDim, kHeadDim}, {v.data(), kPositions, kHeadDim, kHeadDim}, 0,
                299, {1.0f}, y.data());
  for (const float value : y) EXPECT_TRUE(std::isnan(value));
}

TEST(CacheTypes, ReadBackWhatTheirDefinitionSays) {
  const auto x = values(64, 9);
  std::vector<float> y(64);
  std::vector<std::byte> row(256);
  cache_encode_ref(CacheType::f32, x.data(), 64, row.data());
  cache_decode_ref(CacheType::f32, row.data(), 64, y.data());
  EXPECT_EQ(x, y);
  cache_encode_ref(CacheType::f16, x.data(), 64, row.data());
  cache_decode_ref(CacheType::f16, row.data(), 64, y.data());
  for (size_t j = 0; j < 64; ++j) EXPECT_EQ(y[j], num::half_to_float(num::float_to_half(x[j])));
  EXPECT_EQ(cache_row_bytes(CacheType::q8_0, 64), 68);
  cache_encode_ref(CacheType::q8_0, x.data(), 64, row.data());
  cache_decode_ref(CacheType::q8_0, row.data(), 64, y.data());
  for (size_t block = 0; block < 2; ++block) {
    float top = 0.0f;
    for (size_t j = 0; j < 32; ++j) top = std::max(top, std::abs(x[32 * block + j]));
    for (size_t j = 32 * block; j < 32 * block + 32; ++j)
      EXPECT_NEAR(y[j], x[j], top / 127 * 0.57f);  // half a step, the scale's rounding
  }
}

TEST(CacheTypes, PoisonStaysVisible) {
  std::vector<float> x(32, 1.0f), y(32);
  x[5] = INFINITY;
  std::vector<std::byte> row(128);
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::q8_0}) {
    cache_encode_ref(type, x.data(), 32, row.data());
    cache_decode_ref(type, row.data(), 32, y.data());
    EXPECT_FALSE(std::isfinite(y[5]));
  }
}

}  // namespace
}  // namespace assay::ops
