// What llama.cpp's products multiply with, by hand from its formats' definitions.
#include "bounds/known_activations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "num/f16.h"
#include "support/random_numbers.h"

namespace assay::bounds {
namespace {

using testing::Each;
using testing::IsEmpty;

Declared llama_cpp() {
  Declared declared;
  declared.activation_bits = 8;
  declared.activation_scale_f16 = true;
  declared.activations_f16 = true;
  declared.as_llama_cpp = true;
  return declared;
}

KnownActivations known(std::vector<double> x, tensor::DType dtype, const Declared& declared = llama_cpp()) {
  for (double& value : x) value = static_cast<double>(static_cast<float>(value));
  return known_activations({1, static_cast<int64_t>(x.size()), x, {}}, *quant::find_format(dtype), declared);
}

TEST(KnownActivations, BlocksOf32HaveAScaleInHalfPrecision) {
  std::vector<double> x(32, 0.0);
  x[0] = -127;  // steps of 1
  x[1] = 3.25;
  x[2] = 3.75;
  KnownActivations found = known(x, tensor::DType::Q4_0);
  ASSERT_EQ(found.values.size(), x.size());
  EXPECT_EQ(found.values[0], -127);
  EXPECT_EQ(found.values[1], 3);
  EXPECT_EQ(found.values[2], 4);
  EXPECT_EQ(found.doubtful[0], 0);
  EXPECT_EQ(found.sum_offset[0], 0);    // -120 is an f16
  x[0] = -127 * 1.0009765625 * 1.0001;  // the scale is not: it is stored as 1 + 2^-10
  found = known(x, tensor::DType::Q4_1);
  ASSERT_EQ(found.values.size(), x.size());
  EXPECT_EQ(found.values[0], -127 * 1.0009765625);
  EXPECT_EQ(found.values[1], 3 * 1.0009765625);
  const double sum =
      static_cast<double>(num::half_to_float(num::float_to_half(static_cast<float>(-120 * 1.0009765625 * 1.0001))));
  EXPECT_EQ(found.sum_offset[0], sum + 120 * 1.0009765625);
  EXPECT_NE(found.sum_offset[0], 0);
  EXPECT_EQ(found.sum_doubtful[0], 0);
}

TEST(KnownActivations, TheMiddleBetweenTwoStepsIsInDoubt) {
  std::vector<double> x(64, 0.0);
  x[0] = 127;
  x[1] = 3.5;
  x[32] = 254;
  x[33] = 2 * 3.5;
  x[34] = 2 * 7.5;
  const KnownActivations found = known(x, tensor::DType::Q8_0);
  ASSERT_EQ(found.doubtful.size(), 2u);
  EXPECT_EQ(found.doubtful[0], 1);
  EXPECT_DOUBLE_EQ(found.doubtful[1], 2 * std::sqrt(2.0));
  EXPECT_GT(found.sum_doubtful[1], 0);
}

TEST(KnownActivations, BlocksOf256CountFromTheLargestWithItsSign) {
  std::vector<double> x(256, 0.0);
  x[7] = 63.5;  // steps of 1/2
  x[8] = -10.2;
  x[200] = 0.3;
  const KnownActivations found = known(x, tensor::DType::Q4_K);
  ASSERT_EQ(found.values.size(), x.size());
  EXPECT_EQ(found.values[7], 63.5);
  EXPECT_EQ(found.values[8], -10);
  EXPECT_EQ(found.values[200], 0.5);
  EXPECT_THAT(found.doubtful, Each(0));
  EXPECT_THAT(found.sum_offset, IsEmpty());
}

TEST(KnownActivations, FloatWeightsRoundThemToTheirType) {
  const std::vector<double> x = {1 + 0x1p-12, 1 + 0x1p-9};
  EXPECT_THAT(known(x, tensor::DType::F16).values, testing::ElementsAre(1, 1 + 0x1p-9));
  EXPECT_THAT(known(x, tensor::DType::BF16).values, testing::ElementsAre(1, 1));
  EXPECT_THAT(known(x, tensor::DType::F32).values, IsEmpty());
}

TEST(KnownActivations, AreWithinHalfAStepAndTheScalesRounding) {
  test::Random random(7);
  for (const tensor::DType dtype : {tensor::DType::Q5_1, tensor::DType::Q6_K}) {
    std::vector<double> x(512);
    for (double& value : x) value = static_cast<double>(random.uniform());
    const KnownActivations found = known(x, dtype);
    ASSERT_EQ(found.values.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(found.values[i], x[i], 0.5 / 127 * 1.001 + std::fabs(x[i]) * 0x1p-11);
  }
}

TEST(KnownActivations, AreNotKnownWhereTheSourceDoesNotSayOrInputsAreUncertain) {
  const std::vector<double> x(32, 0.5);
  Declared declared = llama_cpp();
  declared.as_llama_cpp = false;
  EXPECT_THAT(known(x, tensor::DType::Q4_0, declared).values, IsEmpty());
  declared = llama_cpp();
  declared.activation_block = 32;
  EXPECT_THAT(known(x, tensor::DType::Q4_0, declared).values, IsEmpty());
  const std::vector<double> error(32, 1e-9);
  EXPECT_THAT(known_activations({1, 32, x, error}, *quant::find_format(tensor::DType::Q4_0), llama_cpp()).values,
              IsEmpty());
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e38, 0.1}) {
    std::vector<double> with = x;
    with[3] = bad;  // no number, a scale beyond f16, and no float
    EXPECT_THAT(known_activations({1, 32, with, {}}, *quant::find_format(tensor::DType::Q4_0), llama_cpp()).values,
                IsEmpty())
        << bad;
  }
}

}  // namespace
}  // namespace assay::bounds
