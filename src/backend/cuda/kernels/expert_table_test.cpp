// The table of experts' products without a card: every number of tokens has one row, the ranges are where the rows say,
// and the main cases are named.
#include "backend/cuda/kernels/expert_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backend/cuda/kernels/kernel_plan.h"
#include "backend/cuda/kernels/kernel_uses.h"
#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/schedule/schedule.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_sum.h"
#include "ops/rows/activate.h"
#include "ops/rows/gate.h"
#include "quant/format.h"

namespace assay::backend::cuda {
namespace {

using tensor::DType;

const Card kHopper = *find_card("h200"), kAmpere = *find_card("a100"), kAda = *find_card("rtx4090");

ExpertProduct product_of(DType dtype, int planes, int64_t n_experts, int64_t n_used) {
  return {{dtype, n_experts * 768, part_bytes(dtype, false).n > 1},
          quant::find_format(dtype)->activation,
          planes,
          n_experts,
          n_used};
}
std::string text_of(const ExpertChoice& choice) {
  std::string text;
  for (const ExpertRange& range : choice.ranges()) {
    text += (text.empty() ? "" : ", ") + std::to_string(range.tokens_min) + "..";
    if (range.tokens_max != kAnyTokens) text += std::to_string(range.tokens_max);
    text += " " + std::string(range.row->name);
  }
  return text;
}
std::string choice_of(const ExpertProduct& product, const Card& card) { return text_of(ExpertChoice(product, card)); }

TEST(CudaExpertTable, NamesAreUnique) {
  for (const ExpertRow& row : expert_table()) EXPECT_EQ(find_expert_row(row.name), &row);
  EXPECT_EQ(find_expert_row("no such row"), nullptr);
}

TEST(CudaExpertTable, EveryNumberOfTokensHasTheFirstRowThatTakesIt) {
  for (const Card& card : {kHopper, kAmpere, kAda}) {
    for (const quant::Format& format : quant::all_formats()) {
      for (const int planes : {1, 2}) {
        for (const auto& [n_experts, n_used] :
             {std::pair<int64_t, int64_t>{128, 8}, {32, 4}, {8, 2}, {7, 3}, {1, 1}, {5000, 10}}) {
          const ExpertProduct product = product_of(format.dtype, planes, n_experts, n_used);
          const ExpertChoice choice(product, card);
          int64_t next = 1;
          for (const ExpertRange& range : choice.ranges()) {
            ASSERT_EQ(range.tokens_min, next) << text_of(choice);
            next = range.tokens_max + 1;
          }
          ASSERT_EQ(choice.ranges().back().tokens_max, kAnyTokens);
          for (int64_t n = 1; n <= 1200; ++n) {
            const auto first = std::ranges::find_if(
                expert_table(), [&](const ExpertRow& row) { return row.takes(product, n * n_used, card); });
            ASSERT_NE(first, expert_table().end());
            ASSERT_EQ(&choice.at(n), &*first) << n << ": " << text_of(choice);
          }
        }
      }
    }
  }
}

TEST(CudaExpertTable, MainCases) {
  EXPECT_EQ(choice_of(product_of(DType::Q4_K, 2, 128, 8), kHopper),
            "1..31 expert vectors, 32..512 expert group tiles of 64, 513.. expert group tiles");
  EXPECT_EQ(choice_of(product_of(DType::Q6_K, 1, 8, 2), kHopper),
            "1..7 expert vectors, 8..256 expert group tiles of 64, 257.. expert group tiles");
  EXPECT_EQ(choice_of(product_of(DType::Q8_0, 2, 128, 8), kHopper), "1..31 expert vectors, 32.. expert group tiles");
  EXPECT_EQ(choice_of(product_of(DType::Q4_K, 2, 128, 8), kAmpere), "1.. expert vectors");
  EXPECT_EQ(choice_of(product_of(DType::IQ4_XS, 2, 128, 8), kHopper), "1.. experts of any format");
  EXPECT_EQ(choice_of(product_of(DType::MXFP4, 2, 32, 4), kHopper), "1.. experts of any format");
  EXPECT_EQ(choice_of(product_of(DType::F16, 2, 8, 2), kHopper), "1.. experts of floats");
}

// x and routes -> gate, up -> their activation -> down, 8 experts of 2 a token.
struct ExpertBlock {
  ops::Plan plan;

  ExpertBlock() {
    for (const int64_t width : {256, 4, 512, 512, 512, 512}) plan.values.push_back({"", width});
    for (int i = 0; i < 3; ++i) {
      plan.weights.emplace_back();
      plan.weights.back().view.dtype = DType::Q4_K;
      plan.weights.back().view.shape = tensor::Shape{{8, 256, 256, 1}, 3};
    }
    plan.input = 0, plan.hidden = 5;
    const auto product = [](ops::ValueId x, ops::WeightId w, ops::ValueId y) {
      return ops::ExpertLinear{x, 1, w, ops::kNone, 8, 2, 256, 256, y};
    };
    plan.ops.push_back({ops::Activate{0, ops::ActivationFunction::silu, 1}, "routes", 0});
    plan.ops.push_back({product(0, 0, 2), "gate", 0});
    plan.ops.push_back({product(0, 1, 3), "up", 0});
    plan.ops.push_back({ops::Gate{2, 3, ops::ActivationFunction::silu, 4}, "act", 0});
    plan.ops.push_back({product(4, 2, 5), "down", 0});
  }
};

TEST(CudaExpertTable, ProductsFindWhatThoseAheadHaveLeft) {
  const ExpertBlock block;
  const ops::ExecutorOptions options;
  const auto kernels_on = [&](const Card& card) {
    return KernelPlan(block.plan, options, make_schedule(block.plan, options, card), card);
  };
  const KernelPlan hopper = kernels_on(kHopper), ampere = kernels_on(kAmpere);
  for (const int64_t n : {1, 7, 8, 40, 1000}) {
    const ExpertRange &gate = hopper.experts(1).range_at(n), &up = hopper.experts(2).range_at(n),
                      &down = hopper.experts(4).range_at(n);
    const bool in_tiles = n >= 8;
    EXPECT_EQ(down.row->kernel, in_tiles ? ExpertKernel::group_tiles : ExpertKernel::vectors) << n;
    EXPECT_EQ(down.routes_are_settled, !in_tiles) << n;
    EXPECT_FALSE(gate.routes_are_settled || up.routes_are_settled) << n;
    EXPECT_EQ(gate.made, ExpertsMade{}) << n;
    EXPECT_EQ(up.made, (ExpertsMade{in_tiles, in_tiles})) << n << ": of the same rows";
    EXPECT_EQ(down.made, (ExpertsMade{in_tiles, false})) << n << ": of the same routes";
    EXPECT_TRUE(ampere.experts(4).range_at(n).routes_are_settled) << n;
    EXPECT_EQ(ampere.experts(4).range_at(n).made, ExpertsMade{}) << n;
  }
}

std::vector<DecodeGroup::Kind> kinds_of(const ops::Plan& plan) {
  std::vector<DecodeGroup::Kind> kinds;
  for (const DecodeGroup& group : make_schedule(plan, ops::ExecutorOptions{}, kHopper).decode)
    kinds.push_back(group.kind);
  return kinds;
}

TEST(CudaExpertTable, ABlockOfATokenIsTwoKernels) {
  using enum DecodeGroup::Kind;
  const auto with_sum = [](int64_t n_used) {
    ExpertBlock block;
    block.plan.values.push_back({"", 256});
    block.plan.ops.push_back({ops::ExpertSum{5, 1, n_used, true, 6}, "sum", 0});
    block.plan.hidden = 6;
    return block.plan;
  };
  const ops::Plan plan = with_sum(2);
  const std::vector<DecodeGroup::Kind> kinds = kinds_of(plan);
  ASSERT_GE(kinds.size(), 2u);
  EXPECT_EQ(kinds[kinds.size() - 2], expert_gate);
  EXPECT_EQ(kinds.back(), expert_sum);
  const Schedule schedule = make_schedule(plan, ops::ExecutorOptions{}, kHopper);
  const KernelPlan kernels(plan, ops::ExecutorOptions{}, schedule, kHopper);
  EXPECT_EQ(kernel_uses(plan, schedule, kernels, 2).front().name, "cuda experts of one token, gated");
  EXPECT_EQ(kernel_uses(plan, schedule, kernels, 5).front().name, "cuda experts of one token, summed");

  ops::Plan mixed = plan;  // gate and up of two formats
  mixed.weights[1].view.dtype = DType::Q5_K;
  ops::Plan other_gate = plan;
  other_gate.ops[3].get<ops::Gate>().activation = ops::ActivationFunction::gelu_erf;
  ops::Plan blocks_of_32 = plan;
  for (auto& w : blocks_of_32.weights) w.view.dtype = DType::Q4_0;
  for (const ops::Plan& other : {mixed, other_gate, blocks_of_32, ExpertBlock().plan}) {
    const std::vector<DecodeGroup::Kind> of_other = kinds_of(other);
    EXPECT_EQ(std::ranges::count(of_other, expert_gate) + std::ranges::count(of_other, expert_sum), 0);
  }
}

}  // namespace
}  // namespace assay::backend::cuda
