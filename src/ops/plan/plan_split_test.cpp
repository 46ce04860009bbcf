// Parts of a plan: every op once, numbers of their own, one value handed over.
#include "ops/plan/plan_split.h"

#include <gtest/gtest.h>

#include "assay/error.h"
#include "ops/plan/op_values.h"
#include "support/tiny_plan.h"

namespace assay::ops {
namespace {

TEST(PlanSplit, PartsHaveTheirLayersAndHandOneValueOver) {
  for (const bool gemma : {false, true}) {
    test::TinyShape shape;
    shape.n_layers = 5;
    shape.gemma = gemma;
    const test::TinyPlan tiny(shape);
    const std::vector<PlanPart> parts = split_plan(tiny.plan, std::vector<int32_t>{1, 3});
    ASSERT_EQ(parts.size(), 3u);
    size_t n_ops = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Plan& plan = parts[i].plan;
      EXPECT_EQ(parts[i].i_op, static_cast<int32_t>(n_ops));
      EXPECT_EQ(plan.cache_layers.size(), i == 0 ? 1u : 2u);
      EXPECT_EQ(plan.input == kNone, i == 0);
      EXPECT_EQ(plan.handed == kNone, i == 2);
      EXPECT_EQ(plan.logits == kNone, i != 2);
      std::vector<bool> used(plan.values.size());
      for (const Op& op : plan.ops) {
        const Op& whole = tiny.plan.ops[n_ops++];
        EXPECT_EQ(op.name, whole.name);
        EXPECT_EQ(op.record.type(), whole.record.type());
        OpValues own = values_of(op), of_whole = values_of(whole);
        own.inputs.push_back(own.output), of_whole.inputs.push_back(of_whole.output);
        for (size_t v = 0; v < own.inputs.size(); ++v) {
          ASSERT_EQ(own.inputs[v] == kNone, of_whole.inputs[v] == kNone);
          if (own.inputs[v] == kNone) continue;
          EXPECT_EQ(plan.values[static_cast<size_t>(own.inputs[v])].name,
                    tiny.plan.values[static_cast<size_t>(of_whole.inputs[v])].name);
          used[static_cast<size_t>(own.inputs[v])] = true;
        }
        if (const auto* store = op.as<KvStore>()) {
          EXPECT_LT(static_cast<size_t>(store->layer), plan.cache_layers.size());
        }
      }
      EXPECT_EQ(std::count(used.begin(), used.end(), false), 0);
    }
    EXPECT_EQ(n_ops, tiny.plan.ops.size());
    EXPECT_EQ(parts[1].plan.values[static_cast<size_t>(parts[1].plan.handed)].name, "residual");
  }
}

TEST(PlanSplit, BordersThatLeaveAPartEmptyAreRefused) {
  const test::TinyPlan tiny({.n_layers = 3});
  for (const std::vector<int32_t>& borders : {std::vector<int32_t>{0}, {3}, {-1}, {2, 2}, {2, 1}}) {
    try {
      split_plan(tiny.plan, borders);
      ADD_FAILURE() << "not refused: " << borders.front();
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::bad_request);
    }
  }
}

TEST(PlanSplit, ASecondValueAcrossTheBorderIsRefused) {
  test::TinyPlan tiny({.n_layers = 3});
  tiny.plan.ops[tiny.plan.ops.size() - 3].get<Add>().a = 0;  // the embedding, read again in the last layer
  EXPECT_THROW(split_plan(tiny.plan, std::vector<int32_t>{1}), Error);
}

}  // namespace
}  // namespace assay::ops
