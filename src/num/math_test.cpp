// Our binary32 functions against libm in double: a coarse net of inputs here, a fine one in math_slow_test.cpp; and
// their edges.
#include "num/math.h"

#include <gtest/gtest.h>

#include "num/math_bounds.h"
#include "support/random_numbers.h"

namespace assay::num {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Math, WithinTheStatedUlp) {
  for (const Bound& bound : kBounds) {
    const Survey s = survey(4099, bound.low, bound.high, bound.ours, bound.truth);
    EXPECT_LE(s.ulp_max, bound.ulp) << bound.name << " at " << s.worst;
    EXPECT_TRUE(s.specials_agree) << bound.name;
  }
}

// Their bits are part of the contract. Numerics 1; NaNs count as a class.
TEST(Math, GoldenDigests) {
  const struct {
    const char* name;
    float (*f)(float);
    uint64_t digest;
  } golden[] = {{"exp", exp, 0x27a1776b3adcdc14u},
                {"silu", silu, 0x33283fffb6987c54u},
                {"gelu_tanh", gelu_tanh, 0x27212f3ecbee8d5eu},
                {"tanh", tanh, 0x71544835deeee46du}};
  for (const auto& g : golden) {
    test::Digest digest;
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 65521) {
      const float y = g.f(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      digest.add(std::isnan(y) ? std::numeric_limits<float>::quiet_NaN() : y);
    }
    EXPECT_EQ(digest.value(), g.digest) << g.name << std::hex << " now 0x" << digest.value();
  }
}

TEST(Math, ExpNearHasTheBitsOfExp) {
  const uint32_t last = std::bit_cast<uint32_t>(kExpNearMax);
  for (uint32_t bits = 0; bits < last;
       bits += bits < 0x30000000u ? 65521 : 257) {  // subnormals, then every 257th up to it
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float x = std::bit_cast<float>(bits | sign);
      ASSERT_EQ(std::bit_cast<uint32_t>(exp_near(x)), std::bit_cast<uint32_t>(exp(x))) << x;
    }
  }
  EXPECT_EQ(exp_near(kExpNearMax), exp(kExpNearMax));
  EXPECT_EQ(exp_near(-kExpNearMax), exp(-kExpNearMax));
}

TEST(Math, ExpNotAbove0HasTheBitsOfExp) {
  const uint32_t last = std::bit_cast<uint32_t>(110.0f);
  for (uint32_t bits = 0; bits < last; bits += bits < 0x30000000u                      ? 65521
                                               : bits < std::bit_cast<uint32_t>(80.0f) ? 257
                                                                                       : 1) {
    const float x = std::bit_cast<float>(bits | 0x80000000u);
    ASSERT_EQ(std::bit_cast<uint32_t>(exp_not_above_0(x)), std::bit_cast<uint32_t>(exp(x))) << x;
  }
  for (const float x : {0.0f, -0.0f, -kInfinity, std::numeric_limits<float>::lowest()}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(exp_not_above_0(x)), std::bit_cast<uint32_t>(exp(x))) << x;
  }
  EXPECT_EQ(std::bit_cast<uint32_t>(exp_not_above_0(std::numeric_limits<float>::quiet_NaN())), 0u);
}

TEST(Math, ExpEdges) {
  EXPECT_EQ(exp(0.0f), 1.0f);
  EXPECT_EQ(exp(-0.0f), 1.0f);
  EXPECT_EQ(exp(0x1p-149f), 1.0f);
  EXPECT_EQ(exp(kInfinity), kInfinity);
  EXPECT_EQ(exp(-kInfinity), 0.0f);
  EXPECT_FALSE(std::signbit(exp(-kInfinity)));
  EXPECT_EQ(exp(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(exp(std::numeric_limits<float>::lowest()), 0.0f);
  EXPECT_TRUE(std::isfinite(exp(0x1.62e42ep+6f)));  // the largest input whose result is finite
  EXPECT_EQ(exp(0x1.62e43p+6f), kInfinity);
  EXPECT_EQ(exp(-0x1.9fe368p+6f), 0x1p-149f);  // the smallest whose result is not 0
  EXPECT_EQ(exp(-0x1.9fe36ap+6f), 0.0f);
  for (const uint32_t bits : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    EXPECT_TRUE(std::isnan(exp(std::bit_cast<float>(bits))));
    EXPECT_TRUE(std::isnan(silu(std::bit_cast<float>(bits))));
    EXPECT_TRUE(std::isnan(gelu_tanh(std::bit_cast<float>(bits))));
    EXPECT_TRUE(std::isnan(tanh(std::bit_cast<float>(bits))));
  }
}

TEST(Math, SiluAndGeluEdges) {
  for (const auto f : {silu, gelu_tanh}) {
    EXPECT_EQ(f(0.0f), 0.0f);
    EXPECT_TRUE(std::signbit(f(-0.0f)));
    EXPECT_EQ(f(kInfinity), kInfinity);
    EXPECT_TRUE(std::isnan(f(-kInfinity)));
    EXPECT_EQ(f(100.0f), 100.0f);
    EXPECT_EQ(f(-100.0f), 0.0f);
    EXPECT_EQ(f(std::numeric_limits<float>::max()), std::numeric_limits<float>::max());
    EXPECT_EQ(f(std::numeric_limits<float>::lowest()), 0.0f);
  }
}

TEST(Math, TanhIsOddAndBounded) {
  EXPECT_EQ(tanh(kInfinity), 1.0f);
  EXPECT_EQ(tanh(-kInfinity), -1.0f);
  EXPECT_TRUE(std::signbit(tanh(-0.0f)));
  EXPECT_EQ(tanh(0x1p-149f), 0x1p-149f);
  for (float x = 0; x < 12; x += 0.01f) {
    EXPECT_EQ(tanh(-x), -tanh(x));
    EXPECT_LE(tanh(x), 1.0f);
  }
}

TEST(Math, Softcap) {
  EXPECT_EQ(softcap(0.0f, 30.0f), 0.0f);
  EXPECT_EQ(softcap(1e30f, 30.0f), 30.0f);
  EXPECT_EQ(softcap(-1e30f, 30.0f), -30.0f);
  EXPECT_NEAR(softcap(10.0f, 30.0f), 30.0 * std::tanh(10.0 / 30.0), 2e-6);
}

}  // namespace
}  // namespace assay::num
