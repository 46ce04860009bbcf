#include "assay/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "assay/error.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() {
    test::TinyLlamaWriter(test::TinyLlama{}).file().write(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string(), {.tokenizer = false});
    options_.n_threads = 1;
    options_.n_ctx = 32;
  }

  test::TempFolder folder_;
  std::shared_ptr<const Model> model_;
  ContextOptions options_;
};

const PlannedOp& op_named(const std::vector<PlannedOp>& plan, std::string_view name) {
  const auto found = std::ranges::find(plan, name, &PlannedOp::name);
  if (found == plan.end()) throw std::runtime_error("no op of that name");
  return *found;
}

TEST_F(PlanTest, ListsWhatRunsInItsOrder) {
  Context context(model_, options_);
  const std::vector<PlannedOp> plan = plan_of(context);
  EXPECT_EQ(plan.front().name, "token_embd");
  EXPECT_EQ(plan.back().kind, "linear");
  const PlannedOp& query = op_named(plan, "blk.0.attn_q");
  EXPECT_EQ(query.kind, "linear");
  EXPECT_EQ(query.layer, 0);
  EXPECT_THAT(query.reads, ElementsAre("blk.0.attn_norm"));
  ASSERT_EQ(query.weights.size(), 1u);
  EXPECT_EQ(query.weights[0].name, "blk.0.attn_q.weight");
  EXPECT_THAT(query.weights[0].shape, ElementsAre(query.width, model_->d_model()));
  EXPECT_EQ(query.work.multiply_adds, query.width * model_->d_model());
  EXPECT_EQ(op_named(plan_of(context, 5), "blk.0.attn_q").work.multiply_adds, 5 * query.work.multiply_adds);
}

TEST_F(PlanTest, EveryNumberOfTokensHasOneKernel) {
  Context context(model_, options_);
  for (const PlannedOp& op : plan_of(context)) {
    ASSERT_FALSE(op.kernels.empty()) << op.name;
    int64_t next = 1;
    for (const PlanKernel& kernel : op.kernels) {
      EXPECT_EQ(kernel.tokens_min, next) << op.name;
      EXPECT_FALSE(kernel.name.empty()) << op.name;
      next = kernel.tokens_max + 1;
    }
    EXPECT_EQ(next, 1) << op.name << ": the last has no end";
  }
}

TEST_F(PlanTest, AContextNamesEachKindThatIsBorrowedOnce) {
  Context context(model_, options_);
  std::vector<std::string> kinds;
  for (const PlannedOp& op : plan_of(context)) {
    const bool is_borrowed = std::ranges::any_of(op.kernels, &PlanKernel::borrowed);
    if (is_borrowed && std::ranges::find(kinds, op.kind) == kinds.end()) kinds.push_back(op.kind);
  }
  EXPECT_EQ(context.borrowed(), kinds);
}

TEST_F(PlanTest, TheReferenceBorrowsNothing) {
  options_.kernels = Kernels::reference;
  Context context(model_, options_);
  EXPECT_THAT(context.borrowed(), IsEmpty());
  for (const PlannedOp& op : plan_of(context)) {
    ASSERT_EQ(op.kernels.size(), 1u) << op.name;
    EXPECT_EQ(op.kernels[0].name, "reference");
    EXPECT_FALSE(op.kernels[0].borrowed);
  }
}

TEST_F(PlanTest, ForACardThatIsNotHere) {
  for (const std::string& card : card_names()) {
    const CardPlan plan = plan_for_card(model_, options_, card, 5);
    EXPECT_EQ(plan.options.backend, Backend::cuda);
    for (const PlannedOp& op : plan.ops) {
      ASSERT_FALSE(op.kernels.empty()) << op.name;
      int64_t next = 1;
      for (const PlanKernel& kernel : op.kernels) {
        EXPECT_EQ(kernel.tokens_min, next) << op.name << " on " << card;
        EXPECT_FALSE(kernel.borrowed) << op.name;
        next = kernel.tokens_max + 1;
      }
      EXPECT_EQ(next, 1) << op.name << ": the last has no end";
    }
    Context context(model_, options_);
    EXPECT_EQ(op_named(plan.ops, "blk.0.attn_q").work.bytes, op_named(plan_of(context, 5), "blk.0.attn_q").work.bytes);
  }
  ContextOptions fast = options_;
  fast.numerics = Numerics::fast;
  EXPECT_EQ(plan_for_card(model_, fast, "h200").options.numerics, Numerics::fast) << "no GPU is asked for";
  try {
    plan_for_card(model_, options_, "abacus");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_request);
    EXPECT_THAT(error.what(), HasSubstr("needs one of h200, h100,"));
  }
}

TEST_F(PlanTest, RefusesMoreThanTheContextHolds) {
  Context context(model_, options_);
  try {
    plan_of(context, 30, 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_request);
    EXPECT_THAT(error.what(), HasSubstr("32 positions"));
  }
}

}  // namespace
}  // namespace assay
