// The survey of math_test.cpp over every 257th input; with ASSAY_EXHAUSTIVE in the environment, over all 2^32. Prints
// the table of docs/numerics.md.
#include <gtest/gtest.h>

#include <cstdlib>

#include "num/math_bounds.h"

namespace assay::num {
namespace {

TEST(MathSlow, WithinTheStatedUlp) {
  const uint64_t stride = std::getenv("ASSAY_EXHAUSTIVE") != nullptr ? 1 : 257;
  for (const Bound& bound : kBounds) {
    const Survey s = survey(stride, bound.low, bound.high, bound.ours, bound.truth);
    EXPECT_LE(s.ulp_max, bound.ulp) << bound.name << " at " << s.worst;
    EXPECT_TRUE(s.specials_agree) << bound.name;
    std::printf("%-26s %11lld inputs  %.3f ulp at %.9g\n", bound.name, static_cast<long long>(s.n_inputs), s.ulp_max,
                static_cast<double>(s.worst));
  }
}

}  // namespace
}  // namespace assay::num
