// The order of sums: which lane an element goes to, and how lanes fold. Values are chosen so that any other order gives
// other bits.
#include "num/lanes.h"

#include <gtest/gtest.h>

#include <vector>

#include "num/round.h"

namespace assay::num {
namespace {

TEST(Lanes32, ElementGoesToLaneModulo32ByOneFma) {
  Lanes32 sum;
  for (int j = 0; j < 70; ++j) sum.fma(j, static_cast<float>(j), 2.0f);
  for (int lane = 0; lane < 32; ++lane) {
    float expected = 2.0f * static_cast<float>(lane) + 2.0f * static_cast<float>(lane + 32);
    if (lane < 6) expected += 2.0f * static_cast<float>(lane + 64);
    EXPECT_EQ(sum.lane[lane], expected);
  }
  Lanes32 fused;
  fused.add(0, -1.0f);
  fused.fma(0, 1.0f + 0x1p-12f, 1.0f - 0x1p-12f);  // 1 - 2^-24, which a product alone rounds to 1
  EXPECT_EQ(fused.fold(), -0x1p-24f);
}

TEST(Lanes32, FoldsBySixteenEightFourTwoOne) {
  for (int i = 0; i < 32; ++i) {
    for (int k = 0; k < 32; ++k) {
      if (i == k) continue;
      // 2^24 in lane i and 1 in the others: an addition of a lone 1 is lost, of a pair is not. Spelled out once more
      // here.
      Lanes32 sum;
      for (int j = 0; j < 32; ++j) sum.lane[j] = j == i ? 0x1p24f : (j == k ? -0x1p24f : 1.0f);
      std::vector<float> level(sum.lane, sum.lane + 32);
      while (level.size() > 1) {
        std::vector<float> next;
        for (size_t j = 0; j < level.size() / 2; ++j) next.push_back(level[j] + level[j + level.size() / 2]);
        level = next;
      }
      EXPECT_EQ(sum.fold(), level[0]);
    }
  }
}

TEST(RintSmall, RoundsTiesToEven) {
  EXPECT_EQ(rint_small(0.5f), 0.0f);
  EXPECT_EQ(rint_small(1.5f), 2.0f);
  EXPECT_EQ(rint_small(-2.5f), -2.0f);
  EXPECT_EQ(rint_small(126.50001f), 127.0f);
  EXPECT_EQ(rint_small(-0.49999997f), 0.0f);
  EXPECT_EQ(rint_small(4194302.5f), 4194302.0f);
  EXPECT_NE(rint_small(std::nanf("")), rint_small(std::nanf("")));
}

}  // namespace
}  // namespace assay::num
