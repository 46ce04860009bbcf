// Half precision and bfloat16: every value widened against the definition; narrowing at every boundary between two
// neighbours.
#include "num/f16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace assay::num {
namespace {

constexpr float kHalfInfinity = std::numeric_limits<float>::infinity();

TEST(F16, EveryHalfWidensToItsValue) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const int exponent = static_cast<int>((h >> 10) & 31), mantissa = static_cast<int>(h & 1023);
    const float value = half_to_float(static_cast<uint16_t>(h));
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) expected = std::numeric_limits<double>::infinity();
    EXPECT_EQ(value, static_cast<float>((h & 0x8000) != 0 ? -expected : expected)) << h;
    EXPECT_EQ(std::signbit(value), (h & 0x8000) != 0);
  }
}

TEST(F16, EveryHalfComesBack) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const uint16_t back = float_to_half(half_to_float(static_cast<uint16_t>(h)));
    const bool is_nan = (h & 0x7C00) == 0x7C00 && (h & 0x3FF) != 0;
    EXPECT_EQ(back, is_nan ? h | 0x200 : h);
  }
}

// Rounding is monotonic, so its boundaries decide it everywhere: the midpoint of two neighbours goes to the even one,
// and the floats beside the midpoint to the nearer.
TEST(F16, NarrowsToNearestEvenAtEveryBoundary) {
  for (uint32_t h = 0; h < 0x7C00; ++h) {
    const double low = half_to_float(static_cast<uint16_t>(h));
    const double high = h + 1 == 0x7C00 ? 65536.0 : half_to_float(static_cast<uint16_t>(h + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const uint32_t even = (h & 1) == 0 ? h : h + 1;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      EXPECT_EQ(float_to_half(s * middle), sign | even);
      EXPECT_EQ(float_to_half(s * std::nextafter(middle, 0.0f)), sign | h);
      EXPECT_EQ(float_to_half(s * std::nextafter(middle, kHalfInfinity)), sign | (h + 1));
    }
  }
  EXPECT_EQ(float_to_half(kHalfInfinity), 0x7C00);
  EXPECT_EQ(float_to_half(-kHalfInfinity), 0xFC00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(float_to_half(0x1p-149f), 0);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::quiet_NaN()) & 0x7E00, 0x7E00);
}

TEST(Bf16, WidensExactlyAndNarrowsToNearestEven) {
  for (uint32_t b = 0; b < 0x7F80; ++b) {
    const float low = bf16_to_float(static_cast<uint16_t>(b));
    EXPECT_EQ(std::bit_cast<uint32_t>(low), b << 16);
    EXPECT_EQ(float_to_bf16(low), b);
    const auto middle = std::bit_cast<float>((b << 16) | 0x8000u);
    EXPECT_EQ(float_to_bf16(middle), (b & 1) == 0 ? b : b + 1);
    EXPECT_EQ(float_to_bf16(-middle), 0x8000u | ((b & 1) == 0 ? b : b + 1));
    EXPECT_EQ(float_to_bf16(std::nextafter(middle, 0.0f)), b);
    EXPECT_EQ(float_to_bf16(std::nextafter(middle, kHalfInfinity)), b + 1);
  }
  EXPECT_EQ(float_to_bf16(kHalfInfinity), 0x7F80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace assay::num
