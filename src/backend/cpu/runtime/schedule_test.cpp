// Tests of the schedule: few meetings of threads, every op once and after its inputs, memory reused only when nobody
// reads it any more.
#include "backend/cpu/runtime/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "assay/error.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan_check.h"
#include "support/tiny_plan.h"

namespace assay::backend::cpu {
namespace {

using ops::OpValues;
using ops::values_of;

TEST(Schedule, TenStepsALayer) {
  test::TinyShape shape;
  std::vector<size_t> n_steps;
  for (shape.n_layers = 2; shape.n_layers <= 4; ++shape.n_layers) {
    const test::TinyPlan tiny(shape);
    n_steps.push_back(make_schedule(tiny.plan, {}).steps.size());
  }
  // norm + quantise | q k v | rope, store | attention | quantise | output | add, norm, quantise | gate up | act,
  // quantise | down
  EXPECT_EQ(n_steps[1] - n_steps[0], 10u);
  EXPECT_EQ(n_steps[2] - n_steps[1], 10u);
}

TEST(Schedule, EveryOpOnceAndAfterItsInputs) {
  for (const bool gemma : {false, true}) {
    test::TinyShape shape;
    shape.gemma = gemma;
    const test::TinyPlan tiny(shape);
    const Schedule schedule = make_schedule(tiny.plan, {});
    std::vector<int32_t> written_in(tiny.plan.values.size(), ops::kNone);
    size_t n_ops = 0;
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      for (const int32_t i : ops_of(schedule.steps[s])) {
        ++n_ops;
        const OpValues values = values_of(tiny.plan.ops[static_cast<size_t>(i)]);
        for (const ops::ValueId x : values.inputs) {
          ASSERT_NE(written_in[static_cast<size_t>(x)], ops::kNone);
          const int32_t allowed = static_cast<int32_t>(s) - (schedule.steps[s].kind == Step::Kind::rows ? 0 : 1);
          EXPECT_LE(written_in[static_cast<size_t>(x)], allowed);
        }
        if (values.output == ops::kNone) continue;
        EXPECT_EQ(written_in[static_cast<size_t>(values.output)], ops::kNone);
        written_in[static_cast<size_t>(values.output)] = static_cast<int32_t>(s);
      }
    }
    EXPECT_EQ(n_ops, tiny.plan.ops.size());
  }
}

TEST(Schedule, QuantisesEveryInputOnce) {
  const test::TinyPlan tiny({});
  const Schedule schedule = make_schedule(tiny.plan, {});
  EXPECT_EQ(schedule.twins.list.size(),
            2u * 4 + 1);  // of a layer: attn_norm, attention, ffn_norm, ffn_act; and the head's
  ops::ExecutorOptions options;
  options.weights_as_f32 = true;
  EXPECT_TRUE(make_schedule(tiny.plan, options).twins.list.empty());
}

TEST(Schedule, TakesOverMemoryOnlyOfWhatNobodyReads) {
  test::TinyShape shape;
  shape.gemma = true;
  const test::TinyPlan tiny(shape);
  const Schedule schedule = make_schedule(tiny.plan, {});
  size_t n_in_place = 0;
  for (size_t y = 0; y < schedule.lifetimes.values.size(); ++y) {
    const ops::ValueId x = schedule.lifetimes.values[y].in_place_of;
    if (x == ops::kNone) continue;
    ++n_in_place;
    const lower::Lifetime& input = schedule.lifetimes.values[static_cast<size_t>(x)];
    EXPECT_EQ(input.last_step, schedule.lifetimes.values[y].first_step) << tiny.plan.values[y].name;
    EXPECT_LT(input.first_step, input.last_step) << "an observer could not see it any more";
    EXPECT_EQ(std::count_if(schedule.lifetimes.values.begin(), schedule.lifetimes.values.end(),
                            [&](const lower::Lifetime& other) { return other.in_place_of == x; }),
              1);
  }
  EXPECT_GT(n_in_place, 0u);
}

TEST(Schedule, RefusesAValueThatNobodyWrites) {
  test::TinyPlan tiny({});
  std::erase_if(tiny.plan.ops, [](const ops::Op& op) { return op.name == "attn_k" && op.layer == 1; });
  EXPECT_THROW(make_schedule(tiny.plan, {}), Error);
}

TEST(PlanCheck, RefusesWidthsThatDoNotFit) {
  for (const char* name : {"attn_q", "attn_norm", "ffn_act", "attention", "kv_store", "residual", "embed"}) {
    test::TinyPlan tiny({});
    EXPECT_NO_THROW(ops::check_plan(tiny.plan, {.n_ctx = 8}));
    const auto op = std::find_if(tiny.plan.ops.begin(), tiny.plan.ops.end(),
                                 [&](const ops::Op& other) { return other.name == name; });
    const OpValues values = values_of(*op);
    tiny.plan.values[static_cast<size_t>(values.output != ops::kNone ? values.output : values.inputs[0])].width += 32;
    EXPECT_THROW(ops::check_plan(tiny.plan, {.n_ctx = 8}), Error) << name;
  }
}

}  // namespace
}  // namespace assay::backend::cpu
