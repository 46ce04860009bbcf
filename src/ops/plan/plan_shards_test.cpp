// Shards of a plan: every op in each, rows and heads divided without gaps, gathers where whole rows are read, and
// nothing else between.
#include "ops/plan/plan_shards.h"

#include <gtest/gtest.h>

#include "assay/error.h"
#include "ops/linear/gather.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"
#include "support/tiny_plan.h"

namespace assay::ops {
namespace {

// The runs in which shards have the columns of the op of this name, "0-32 32-64"; "all" where each has all.
std::string columns_of(const std::vector<PlanShard>& shards, const Plan& whole, const std::string& name) {
  std::string text;
  for (const PlanShard& shard : shards) {
    for (const PlanShard::Origin& origin : shard.origins) {
      if (origin.i_op == kNone) continue;
      const Op& op = whole.ops[static_cast<size_t>(origin.i_op)];
      if (op.name != name || op.layer > 0) continue;
      if (origin.is_whole) return "all";
      if (!text.empty()) text += " ";
      text += std::to_string(origin.columns.begin) + "-" + std::to_string(origin.columns.end);
    }
  }
  return text;
}

TEST(PlanShards, HeadsAndRowsAreDivided) {
  const test::TinyPlan tiny(
      {.vocab_size = 64, .d_model = 64, .d_ff = 96, .n_heads = 4, .n_kv_heads = 2, .head_dim = 32});
  const auto two = shard_plan(tiny.plan, 2), four = shard_plan(tiny.plan, 4), eight = shard_plan(tiny.plan, 8);
  EXPECT_EQ(columns_of(two, tiny.plan, "attn_q"), "0-64 64-128");
  EXPECT_EQ(columns_of(two, tiny.plan, "kv_store"), "0-32 32-64");
  EXPECT_EQ(columns_of(two, tiny.plan, "ffn_act"), "0-48 48-96");
  EXPECT_EQ(columns_of(two, tiny.plan, "output"), "0-32 32-64");
  EXPECT_EQ(columns_of(two, tiny.plan, "residual"), "all");
  EXPECT_EQ(columns_of(four, tiny.plan, "attention"), "0-32 32-64 64-96 96-128");
  EXPECT_EQ(columns_of(four, tiny.plan, "attn_k"), "0-32 0-32 32-64 32-64");  // two shards share a KV head
  EXPECT_EQ(columns_of(four, tiny.plan, "ffn_up"), "0-24 24-48 48-72 72-96");
  EXPECT_EQ(columns_of(eight, tiny.plan, "ffn_up"), "all");  // 12 rows each
  EXPECT_EQ(columns_of(eight, tiny.plan, "attention"), "all");
  EXPECT_EQ(columns_of(eight, tiny.plan, "ffn_down"), "0-8 8-16 16-24 24-32 32-40 40-48 48-56 56-64");
}

TEST(PlanShards, WhatDoesNotDivideEvenly) {
  const test::TinyPlan nine({.d_model = 288, .n_heads = 9, .n_kv_heads = 3});
  EXPECT_EQ(columns_of(shard_plan(nine.plan, 2), nine.plan, "attention"), "0-96 96-288");
  EXPECT_EQ(columns_of(shard_plan(nine.plan, 2), nine.plan, "kv_store"), "0-32 32-96");
  EXPECT_EQ(columns_of(shard_plan(nine.plan, 3), nine.plan, "attention"), "0-96 96-192 192-288");
  EXPECT_EQ(columns_of(shard_plan(nine.plan, 4), nine.plan, "attention"), "all");
  EXPECT_EQ(columns_of(shard_plan(nine.plan, 4), nine.plan, "attn_q"), "all");
  EXPECT_EQ(columns_of(shard_plan(nine.plan, 5), nine.plan, "ffn_down"), "0-32 32-96 96-160 160-224 224-288");
}

// How many columns of a product's matrix in the first layer each shard has, "256 256"; "none" where they have rows
// alone.
std::string columns_of_matrix(const std::vector<PlanShard>& shards, const Plan& whole, const std::string& name) {
  std::string text;
  for (const PlanShard& shard : shards) {
    for (const Op& op : shard.plan.ops) {
      const auto* linear = op.as<Linear>();
      if (linear == nullptr || op.name != name || op.layer > 0) continue;
      if (linear->columns == kNone) return "none";
      const Weight& columns = shard.plan.weights[static_cast<size_t>(linear->columns)];
      const auto i_shard = &shard - shards.data();
      for (const Op& of : whole.ops) {  // where they lie in the whole's
        if (of.name != name || of.layer > 0) continue;
        const tensor::TensorView& view = whole.weights[static_cast<size_t>(of.get<Linear>().w)].view;
        EXPECT_EQ(columns.view.data.data(), view.data.data() + i_shard * columns.view.row_bytes());
        EXPECT_EQ(columns.stride, view.row_bytes());
        EXPECT_EQ(columns.view.data.data() + columns.view.data.size(),
                  view.row(view.shape.rows() - 1) + (i_shard + 1) * columns.view.row_bytes());
        EXPECT_EQ(columns.view.shape.rows(), view.shape.rows());
      }
      if (!text.empty()) text += " ";
      text += std::to_string(columns.view.shape.cols());
    }
  }
  return text;
}

TEST(PlanShards, ColumnsWhereChunksAreDivided) {
  const test::TinyPlan tiny(
      {.d_model = 1024, .d_ff = 2560, .n_heads = 8, .n_kv_heads = 4, .head_dim = 128, .dtype = tensor::DType::Q4_K});
  const auto two = shard_plan(tiny.plan, 2), four = shard_plan(tiny.plan, 4), three = shard_plan(tiny.plan, 3),
             eight = shard_plan(tiny.plan, 8);
  EXPECT_EQ(columns_of_matrix(two, tiny.plan, "attn_output"), "512 512");
  EXPECT_EQ(columns_of_matrix(two, tiny.plan, "ffn_down"), "1280 1280");
  EXPECT_EQ(columns_of_matrix(two, tiny.plan, "ffn_up"), "none");        // its row is whole
  EXPECT_EQ(columns_of_matrix(four, tiny.plan, "attn_output"), "none");  // more than kColumnShardsMax
  const test::TinyPlan odd(
      {.d_model = 1024, .d_ff = 1280, .n_heads = 8, .n_kv_heads = 4, .head_dim = 128, .dtype = tensor::DType::Q4_K});
  EXPECT_EQ(columns_of_matrix(shard_plan(odd.plan, 2), odd.plan, "attn_output"), "512 512");
  EXPECT_EQ(columns_of_matrix(shard_plan(odd.plan, 2), odd.plan, "ffn_down"), "none");  // five blocks
  EXPECT_EQ(columns_of_matrix(three, tiny.plan, "attn_output"), "none");
  EXPECT_EQ(columns_of_matrix(eight, tiny.plan, "attn_output"), "none");
  const test::TinyPlan nine({.d_model = 288, .n_heads = 9, .n_kv_heads = 3});
  EXPECT_EQ(columns_of_matrix(shard_plan(nine.plan, 2), nine.plan, "attn_output"), "none");  // 3 heads and 6
  const test::TinyPlan biased({.biases = true});
  EXPECT_EQ(columns_of_matrix(shard_plan(biased.plan, 2), biased.plan, "attn_output"), "none");
}

TEST(PlanShards, AllShardsHaveTheSameOpsAndAllOfThem) {
  for (const bool gemma : {false, true}) {
    const test::TinyPlan tiny({.n_layers = 3, .gemma = gemma, .tied = true, .biases = !gemma});
    for (const int n : {2, 3, 4, 8}) {
      const std::vector<PlanShard> shards = shard_plan(tiny.plan, n);
      ASSERT_EQ(shards.size(), static_cast<size_t>(n));
      size_t next = 0;
      for (size_t i = 0; i < shards[0].plan.ops.size(); ++i) {
        const Op& op = shards[0].plan.ops[i];
        const int32_t i_whole = shards[0].origins[i].i_op;
        EXPECT_EQ(i_whole == kNone, op.is<Gather>());
        if (i_whole != kNone) {
          EXPECT_EQ(static_cast<size_t>(i_whole), next++);
        }
        for (const PlanShard& other : shards) {
          EXPECT_EQ(other.plan.ops[i].name, op.name);
          EXPECT_EQ(values_of(other.plan.ops[i]).inputs, values_of(op).inputs);
          EXPECT_EQ(values_of(other.plan.ops[i]).output, values_of(op).output);
        }
      }
      EXPECT_EQ(next, tiny.plan.ops.size());
      EXPECT_EQ(shards[0].plan.values[static_cast<size_t>(shards[0].plan.logits)].width, tiny.plan.vocab_size);
    }
  }
}

TEST(PlanShards, NumbersOfDevicesThatCannotBeAreRefused) {
  const test::TinyPlan tiny({});
  for (const int n : {-1, 0, 1, 9}) EXPECT_THROW(shard_plan(tiny.plan, n), Error) << n;
}

}  // namespace
}  // namespace assay::ops
