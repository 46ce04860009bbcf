// How many prompt tokens a step takes beside running answers.
#include "engine/scheduler/step_cost.h"

#include <gtest/gtest.h>

namespace assay::engine {
namespace {

TEST(StepCost, TakesAllWhereNobodyWaits) {
  StepCost cost;
  EXPECT_EQ(cost.prompt_tokens(0, 250, 512), 512);
  cost.add(0, 512, 100000);
  EXPECT_EQ(cost.prompt_tokens(0, 250, 512), 512);
}

TEST(StepCost, StaysWithinTheGapByWhatWasMeasured) {
  StepCost cost;
  EXPECT_EQ(cost.prompt_tokens(4, 250, 512), 32);  // nothing is known yet
  EXPECT_EQ(cost.prompt_tokens(4, 250, 8), 8);
  cost.add(4, 0, 40);       // four answers alone
  cost.add(4, 32, 40 + 64); // 2 ms a prompt token
  EXPECT_EQ(cost.prompt_tokens(4, 250, 512), (250 * 0.8 - 40) / 2);
  EXPECT_EQ(cost.prompt_tokens(4, 25, 512), 1);  // never none, or a prompt would never be read
  EXPECT_EQ(cost.prompt_tokens(6, 250, 512), 80);  // as the nearest number that was seen
  for (int i = 0; i < 40; ++i) cost.add(4, 80, 40 + 80 * 8);  // the machine is slower from now on
  EXPECT_EQ(cost.prompt_tokens(4, 250, 512), 20);
}

TEST(StepCost, BelievesASlowStepAtOnceAndForgetsItSlowly) {
  StepCost cost;
  cost.add(1, 0, 10);
  cost.add(1, 100, 10 + 100);  // 1 ms a prompt token
  EXPECT_EQ(cost.prompt_tokens(1, 250, 512), 190);
  cost.add(1, 100, 10 + 200);
  EXPECT_EQ(cost.prompt_tokens(1, 250, 512), 111);  // of 1.7 ms
  cost.add(1, 100, 10 + 100);
  EXPECT_EQ(cost.prompt_tokens(1, 250, 512), 116);  // of 1.63 ms
}

}  // namespace
}  // namespace assay::engine
