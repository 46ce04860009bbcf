// The table of ops without a card: every op that the plan may have alone, and every group between two products, has one
// row for any number of tokens; the main cases by name.
#include "backend/cuda/kernels/op_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "ops/rows/add.h"
#include "ops/state/delta_rule.h"

namespace assay::backend::cuda {
namespace {

using Kind = lower::FusionGroup::Kind;

const Card kHopper = *find_card("h200"), kAmpere = *find_card("a100"), kAda = *find_card("rtx4090");

// "1..255 norm of rows, 256.. norm of rows by warps"
std::string text_of(const OpChoice& choice) {
  std::string text;
  for (const auto& range : choice.ranges()) {
    text += (text.empty() ? "" : ", ") + std::to_string(range.tokens_min) + "..";
    if (range.tokens_max != lower::kAnyTokens) text += std::to_string(range.tokens_max);
    text += " " + std::string(range.row->name);
  }
  return text;
}
std::string norm_of(int64_t width, bool makes_integers, const Card& card) {
  OpShape shape;
  shape.width = width;
  shape.makes_integers = makes_integers;
  return text_of(OpChoice(Kind::norm, shape, card));
}

TEST(CudaOpTable, NamesAreUniqueAndEveryKernelHasARow) {
  std::set<std::string_view> names;
  std::set<OpKernel> kernels;
  for (const OpRow& row : op_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    kernels.insert(row.kernel);
    EXPECT_EQ(row.type != nullptr, static_cast<int>(row.kernel) < kNOpsAlone) << row.name;
    EXPECT_EQ(row.type != nullptr, row.group == Kind::op) << row.name;
  }
  EXPECT_EQ(kernels.size(), static_cast<size_t>(OpKernel::integers) + 1);
}

// Behind the rows of an op or a group stands one that takes any shape, for any number of what they count.
TEST(CudaOpTable, EveryOpAndGroupHasARowForAnything) {
  for (const OpRow& row : op_table()) {
    EXPECT_TRUE(std::ranges::any_of(op_table(), [&](const OpRow& other) {
      const bool is_same = row.type == nullptr ? other.type == nullptr && other.group == row.group
                                               : other.type != nullptr && other.type() == row.type();
      return is_same && other.takes == nullptr && other.n_min == 1 && other.n_max == nullptr;
    })) << row.name;
  }
}

TEST(CudaOpTable, Norms) {
  EXPECT_EQ(norm_of(4096, true, kHopper), "1..255 norm of rows, 256.. norm of rows by warps");
  EXPECT_EQ(norm_of(4096, true, kAda), "1..255 norm of rows, 256.. norm of rows by warps");
  EXPECT_EQ(norm_of(8192, true, kHopper), "1..255 norm of rows, 256.. norm of rows by warps");
  EXPECT_EQ(norm_of(8192, true, kAda), "1.. norm of rows") << "four rows are more than its shared memory";
  EXPECT_EQ(norm_of(4100, true, kHopper), "1.. norm of rows") << "no whole blocks of 32";
  EXPECT_EQ(norm_of(4096, false, kHopper), "1..255 norm of rows, 256.. norm of many rows");
  EXPECT_EQ(norm_of(512, false, kAmpere), "1.. norm of short rows");
  EXPECT_EQ(norm_of(512, true, kAmpere), "1..255 norm of short rows, 256.. norm of rows by warps");
}

TEST(CudaOpTable, Heads) {
  OpShape shape;
  shape.token_elements = 6144;
  EXPECT_EQ(text_of(OpChoice(Kind::heads, shape, kHopper)), "1.. heads");
  shape.is_plain = true;
  EXPECT_EQ(text_of(OpChoice(Kind::heads, shape, kHopper)), "1..349525 heads, plain, 349526.. heads");
  shape.is_plain = false, shape.is_in_lanes = true;
  EXPECT_EQ(text_of(OpChoice(Kind::heads, shape, kHopper)), "1..15 heads, 16..349525 heads by lanes, 349526.. heads");
}

// A plan's values of the op, whose rows count parts of sequences.
TEST(CudaOpTable, DeltaRuleByParts) {
  const auto choice_of = [](int64_t d_k, int64_t n_heads, const Card& card) {
    ops::Plan plan;
    ops::DeltaRule delta{};
    delta.n_heads = n_heads, delta.n_key_heads = 4;
    delta.k = 0, delta.v = 1;
    plan.values.resize(2);
    plan.values[0].width = 4 * d_k, plan.values[1].width = n_heads * 128;
    return text_of(OpChoice(plan, ops::Op{delta, "delta", 0}, card));
  };
  EXPECT_EQ(choice_of(128, 32, kHopper), "1..2 delta rule of three warps, 3.. delta rule");
  EXPECT_EQ(choice_of(64, 8, kAmpere), "1..6 delta rule of three warps, 7.. delta rule");
  EXPECT_EQ(choice_of(128, 128, kHopper), "1.. delta rule") << "more blocks than the card has room for";
  EXPECT_EQ(choice_of(96, 32, kHopper), "1.. delta rule in memory");
}

}  // namespace
}  // namespace assay::backend::cuda
