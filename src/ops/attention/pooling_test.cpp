// Pooling: which rows it asks for, the order of its sums, and what cannot be divided.
#include "ops/attention/pooling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "assay/error.h"
#include "ops/plan/plan_head.h"
#include "support/tiny_plan.h"

namespace assay::ops {
namespace {

std::vector<double> pooled(Pooling pooling, const std::vector<std::vector<double>>& rows) {
  Pool pool(pooling, static_cast<int64_t>(rows[0].size()));
  for (size_t t = 0; t < rows.size(); ++t) {
    if (Pool::wants(pooling, static_cast<int64_t>(t), static_cast<int64_t>(rows.size()))) pool.add(rows[t]);
  }
  return std::move(pool).take();
}

TEST(Pooling, IsTheMeanTheFirstOrTheLastRow) {
  const std::vector<std::vector<double>> rows = {{1, 2}, {3, -4}, {5, 8}};
  EXPECT_EQ(pooled(Pooling::mean, rows), (std::vector<double>{3, 2}));
  EXPECT_EQ(pooled(Pooling::cls, rows), (std::vector<double>{1, 2}));
  EXPECT_EQ(pooled(Pooling::last, rows), (std::vector<double>{5, 8}));
  for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
    EXPECT_EQ(pooled(pooling, {{7, 9}}), (std::vector<double>{7, 9}));
  }
}

TEST(Pooling, SumsPositionByPosition) {  // 2^53 + 1 rounds to even: only this order loses both ones
  EXPECT_EQ(pooled(Pooling::mean, {{0x1p53}, {1}, {1}, {-0x1p53}}), (std::vector<double>{0}));
  EXPECT_EQ(pooled(Pooling::mean, {{1}, {1}, {0x1p53}, {-0x1p53}}), (std::vector<double>{0.5}));
}

TEST(Pooling, BringsToLengthOneAndLeavesZeros) {
  std::vector<double> x = {3, -4}, zeros = {0, 0};
  normalise_ref(x), normalise_ref(zeros);
  EXPECT_EQ(x, (std::vector<double>{0.6, -0.8}));
  EXPECT_EQ(zeros, (std::vector<double>{0, 0}));
}

TEST(Pooling, MultipliesByTheRowsOfADenseLayer) {
  const std::vector<float> w = {1, 2, 0, -1, 0.5f, 4};  // [3, 2]
  std::vector<std::byte> bytes(w.size() * sizeof(float));
  std::memcpy(bytes.data(), w.data(), bytes.size());
  const tensor::TensorView view{tensor::DType::F32, {{3, 2, 1, 1}, 2}, bytes};
  EXPECT_EQ(dense_ref(std::vector<double>{10, 1}, view), (std::vector<double>{12, -1, 9}));
}

TEST(PlanHead, EndsWithTheHiddenRows) {
  const test::TinyPlan tiny({});
  Plan plan = tiny.plan;
  EXPECT_THROW(without_head(plan), Error);  // names none
  plan.hidden = plan.ops.back().get<Linear>().x;
  const Plan cut = without_head(plan);
  EXPECT_EQ(cut.ops.size() + 1, plan.ops.size());
  EXPECT_EQ(cut.logits, kNone);
  EXPECT_EQ(cut.output(), plan.hidden);
  EXPECT_EQ(cut.output_width(), plan.d_model);
}

}  // namespace
}  // namespace assay::ops
