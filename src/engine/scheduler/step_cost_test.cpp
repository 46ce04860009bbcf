// How many prompt tokens a step takes beside running answers.
#include "engine/scheduler/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace assay::engine {
namespace {

constexpr double kGap = 250;

TEST(StepCost, TakesAllWhereNobodyWaits) {
  StepCost cost;
  EXPECT_EQ(cost.prompt_tokens(0, 0, kGap, 512), 512);
  cost.add(0, {512, 256}, 100000, kGap);
  EXPECT_EQ(cost.prompt_tokens(0, 0, kGap, 512), 512);
}

TEST(StepCost, StaysWithinTheGapByWhatWasMeasured) {
  StepCost cost;
  EXPECT_EQ(cost.prompt_tokens(4, 0, kGap, 512), 32);  // nothing is known yet
  EXPECT_EQ(cost.prompt_tokens(4, 0, kGap, 8), 8);
  cost.add(4, {}, 40, kGap);             // four answers alone
  cost.add(4, {32, 16}, 40 + 64, kGap);  // 2 ms a prompt token
  EXPECT_EQ(cost.prompt_tokens(4, 0, kGap, 512), (250 * 0.8 - 40) / 2);
  EXPECT_EQ(cost.prompt_tokens(4, 0, 25, 512), 1);                        // never none, or a prompt would never be read
  EXPECT_EQ(cost.prompt_tokens(6, 0, kGap, 512), 80);                     // as the nearest number that was seen
  for (int i = 0; i < 40; ++i) cost.add(4, {80, 40}, 40 + 80 * 8, kGap);  // the machine is slower from now on
  EXPECT_EQ(cost.prompt_tokens(4, 0, kGap, 512), 20);
}

TEST(StepCost, BelievesASlowStepAtOnceAndForgetsItSlowly) {
  StepCost cost;
  cost.add(1, {}, 10, kGap);
  cost.add(1, {100, 50}, 10 + 100, kGap);  // 1 ms a prompt token
  EXPECT_EQ(cost.prompt_tokens(1, 0, kGap, 512), 190);
  cost.add(1, {100, 50}, 10 + 180, kGap);
  EXPECT_EQ(cost.prompt_tokens(1, 0, kGap, 512), 121);  // of 1.56 ms
  cost.add(1, {100, 50}, 10 + 100, kGap);
  EXPECT_EQ(cost.prompt_tokens(1, 0, kGap, 512), 126);  // of 1.504 ms
}

TEST(StepCost, CountsATokenBehindAllThatWasMeasuredByItsPosition) {
  StepCost cost;
  cost.add(1, {32, 16}, 16, kGap);
  EXPECT_EQ(cost.weight(0), 1);
  EXPECT_EQ(cost.weight(1000), 1);  // products are what it costs
  EXPECT_EQ(cost.weight(16384), 16);
  cost.add(1, {32, 8192}, 64, kGap);
  EXPECT_EQ(cost.weight(4000), 1);
  EXPECT_EQ(cost.weight(16384), 2);
}

// What a step of n tokens takes on a GPU whose attention has 264 of them in a wave.
double stairs_ms(int64_t n, double position) {
  const auto waves = static_cast<double>((n + 263) / 264);
  return 4 + 0.06 * static_cast<double>(n) + waves * position * 0.0025;
}

// Steps of a prompt of n_tokens beside 8 answers; the slowest.
double slowest_step(StepCost& cost, double gap_ms, int64_t n_tokens, int64_t& n_steps) {
  double slowest = 0;
  for (int64_t at = 0; at < n_tokens; ++n_steps) {
    const auto position = static_cast<double>(at);
    const auto fit = static_cast<double>(cost.prompt_tokens(8, position, gap_ms, 504)) / cost.weight(position);
    const auto n = std::clamp<int64_t>(static_cast<int64_t>(fit), 1, n_tokens - at);
    const double middle = position + static_cast<double>(n) / 2, ms = stairs_ms(n, middle);
    cost.add(8, {n, middle}, ms, gap_ms);
    slowest = std::max(slowest, ms);
    at += n;
  }
  return slowest;
}

TEST(StepCost, DoesNotClimbAStairAgainThatWasTooSlow) {
  StepCost cost;
  cost.add(8, {}, 4, 100);
  int64_t n_steps = 0;
  EXPECT_LT(slowest_step(cost, 100, 16000, n_steps), 90);
  EXPECT_LT(n_steps, 90);  // and not by taking next to nothing
  n_steps = 0;
  EXPECT_LT(slowest_step(cost, 100, 16000, n_steps), 90);  // the next prompt
  EXPECT_LT(n_steps, 90);
}

TEST(StepCost, TriesMoreTokensAgainOnceALimitIsOld) {
  StepCost cost;
  cost.add(1, {}, 10, kGap);
  cost.add(1, {100, 50}, 10 + 100, kGap);
  cost.add(1, {100, 50}, 10 + 400, kGap);  // once
  for (int i = 0; i < 200; ++i) cost.add(1, {80, 40}, 10 + 80, kGap);
  EXPECT_EQ(cost.prompt_tokens(1, 40, kGap, 512), 87);
  for (int i = 0; i < 60; ++i) cost.add(1, {80, 40}, 10 + 80, kGap);
  EXPECT_EQ(cost.prompt_tokens(1, 40, kGap, 512), 189);
}

}  // namespace
}  // namespace assay::engine
