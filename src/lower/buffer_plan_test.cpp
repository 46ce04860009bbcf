// Tests that buffers alive together never overlap and that the arena stays small.
#include "lower/buffer_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace assay::lower {
namespace {

TEST(BufferPlan, ReusesWhatIsNoLongerRead) {
  const BufferNeed needs[] = {{100, 0, 1}, {100, 1, 2}, {100, 2, 3}, {100, 3, 4}};
  const BufferPlan plan = place_buffers(needs);
  EXPECT_EQ(plan.bytes, 256u);
  EXPECT_EQ(plan.offsets, (std::vector<size_t>{0, 128, 0, 128}));
}

TEST(BufferPlan, InPlaceKeepsTheMemoryAlive) {
  const BufferNeed needs[] = {{64, 0, 1}, {64, 1, 3, 0}, {64, 2, 3}};
  const BufferPlan plan = place_buffers(needs);
  EXPECT_EQ(plan.offsets, (std::vector<size_t>{0, 0, 64}));
}

TEST(BufferPlan, NothingAliveTogetherOverlaps) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<BufferNeed> needs;
    for (int step = 0; step < 60; ++step) {
      const size_t bytes = random() % 5000;
      needs.push_back({bytes, step, step + static_cast<int32_t>(random() % 9)});
    }
    const BufferPlan plan = place_buffers(needs);
    size_t peak = 0;
    for (size_t i = 0; i < needs.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0u);
      EXPECT_LE(plan.offsets[i] + needs[i].bytes, plan.bytes);
      size_t alive = 0;
      for (size_t j = 0; j <= i; ++j) {
        if (needs[j].last_step < needs[i].first_step) continue;
        alive += needs[j].bytes;
        if (j == i) continue;
        EXPECT_TRUE(plan.offsets[i] + needs[i].bytes <= plan.offsets[j] ||
                    plan.offsets[j] + needs[j].bytes <= plan.offsets[i]);
      }
      peak = std::max(peak, alive);
    }
    EXPECT_LT(plan.bytes, 2 * peak + 4096);
  }
}

}  // namespace
}  // namespace assay::lower
