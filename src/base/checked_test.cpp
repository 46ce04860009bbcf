#include "base/checked.h"

#include <gtest/gtest.h>

#include "base/round_up.h"

namespace assay::base {
namespace {

TEST(Checked, StopsWhereTheResultWouldWrap) {
  EXPECT_EQ(checked_add(UINT64_MAX - 1, 1), UINT64_MAX);
  EXPECT_EQ(checked_add(UINT64_MAX, 1), std::nullopt);
  EXPECT_EQ(checked_mul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1), 0xffffffff00000000u);
  EXPECT_EQ(checked_mul(uint64_t{1} << 62, uint64_t{1} << 62), std::nullopt);  // wraps to 0
  EXPECT_EQ(checked_mul(0, UINT64_MAX), 0u);
}

TEST(Checked, RoundsUp) {
  static_assert(round_up(size_t{0}, 64) == 0 && round_up(int64_t{65}, 64) == 128 && round_up(128, 64) == 128);
  EXPECT_EQ(checked_round_up(0, 32), 0u);
  EXPECT_EQ(checked_round_up(1, 32), 32u);
  EXPECT_EQ(checked_round_up(64, 32), 64u);
  EXPECT_EQ(checked_round_up(UINT64_MAX - 5, 32), std::nullopt);
}

}  // namespace
}  // namespace assay::base
