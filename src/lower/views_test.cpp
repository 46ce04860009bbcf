// Tests of values that lie in the memory of others: which are found by what a device's kernels take, where they lie, and
// how long their memory lives.
#include "lower/views.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "lower/lifetimes.h"
#include "lower/placement.h"
#include "ops/attention/rope.h"
#include "ops/rows/activate.h"
#include "ops/rows/join.h"
#include "ops/rows/slice.h"

namespace assay::lower {
namespace {

using ops::kNone;
using ops::ValueId;

// Heads of a and b: both = (a_0 b_0 | a_1 b_1), cut in two, turned, joined again, and read.
struct HeadsPlan {
  static constexpr int64_t kHeads = 3, kA = 4, kB = 2, kAll = kHeads * (kA + kB);
  ops::Plan plan;
  ValueId both = value("both", kAll), a = value("a", kHeads*kA), b = value("b", kHeads*kB),
          turned = value("turned", kHeads*kB), joined = value("joined", kAll), y = value("y", kAll);

  HeadsPlan() {
    plan.input = both, plan.hidden = y;
    add(ops::Slice{both, kHeads, 0, a});
    add(ops::Slice{both, kHeads, kA, b});
    add(ops::Rope{b, 0, kHeads, kB, turned});
    add(ops::Join{a, turned, kHeads, joined});
    add(ops::Activate{joined, ops::ActivationFunction::silu, y});
  }
  ValueId value(const std::string& name, int64_t width) {
    plan.values.push_back({name, width});
    return static_cast<ValueId>(plan.values.size() - 1);
  }
  template <class R>
  void add(R record) {
    plan.ops.push_back({ops::Record(std::move(record)), "op", 0});
  }
  ops::Slice& slice(size_t op) { return plan.ops[op].get<ops::Slice>(); }
  Views views(const ViewRules& rules) const { return find_views(plan, Links(plan), rules); }
};

const ViewRules::Takes kAlways = [](const ops::Op&, ValueId, int64_t) { return true; };
const ViewRules::Takes kNever = [](const ops::Op&, ValueId, int64_t) { return false; };

void expect_view(const Views& views, ValueId value, ValueId base, int64_t first, const ops::ValueLayout& layout) {
  EXPECT_EQ(views.of[at(value)].base, base);
  EXPECT_EQ(views.of[at(value)].first, first);
  EXPECT_EQ(views.layouts[at(value)].stride, layout.stride);
  EXPECT_EQ(views.layouts[at(value)].run, layout.run);
  EXPECT_EQ(views.layouts[at(value)].run_stride, layout.run_stride);
}

TEST(Views, WithoutRulesEveryValueHasMemoryOfItsOwn) {
  const HeadsPlan p;
  const Views views = p.views({});
  for (const ValueId value : {p.both, p.a, p.b, p.turned, p.joined, p.y}) {
    EXPECT_FALSE(views.is_shared(value));
    EXPECT_TRUE(views.layouts[at(value)].is_dense(p.plan.values[at(value)].width));
  }
}

TEST(Views, PartsAreWrittenInPlaceAndSlicesLieInTheirInput) {
  HeadsPlan p;
  const Views views = p.views({kAlways, kAlways});
  expect_view(views, p.a, p.joined, 0, {p.kAll, p.kA, p.kA + p.kB});  // copied once, to where it is wanted
  expect_view(views, p.turned, p.joined, p.kA, {p.kAll, p.kB, p.kA + p.kB});
  expect_view(views, p.b, p.both, p.kA, {p.kAll, p.kB, p.kA + p.kB});
  EXPECT_FALSE(is_view_of_input(p.slice(0), views));
  EXPECT_TRUE(is_view_of_input(p.slice(1), views));
  const auto [a, b] = parts_in_place(p.plan.ops[3].get<ops::Join>(), views);
  EXPECT_TRUE(a && b);
  for (const ValueId value : {p.both, p.a, p.b, p.turned, p.joined}) EXPECT_TRUE(views.is_shared(value));
  EXPECT_FALSE(views.is_shared(p.y));
}

TEST(Views, WhereAKernelDoesNotTakeRunsTheyAreCopied) {
  HeadsPlan p;
  const ViewRules::Takes but_rope = [](const ops::Op& op, ValueId, int64_t) { return !op.is<ops::Rope>(); };
  Views views = p.views({but_rope, kAlways});
  EXPECT_FALSE(views.is_view(p.b));
  EXPECT_TRUE(views.is_view(p.turned));
  views = p.views({kAlways, but_rope});
  EXPECT_TRUE(views.is_view(p.b));
  EXPECT_FALSE(views.is_view(p.turned));
  EXPECT_FALSE(parts_in_place(p.plan.ops[3].get<ops::Join>(), views).b);
  views = p.views({kAlways, kNever});
  EXPECT_TRUE(is_view_of_input(p.slice(0), views));
  EXPECT_FALSE(views.is_shared(p.joined));
  views = p.views({kNever, kAlways});  // parts that nobody but the join reads
  EXPECT_FALSE(views.is_view(p.b));
  EXPECT_TRUE(views.is_view(p.turned));
}

TEST(Views, TheWidthOfARunIsAsked) {
  const HeadsPlan p;
  std::vector<int64_t> asked;
  const ViewRules::Takes keep = [&](const ops::Op& op, ValueId, int64_t run) {
    if (op.is<ops::Rope>()) asked.push_back(run);
    return true;
  };
  p.views({keep, kNever});
  EXPECT_EQ(asked, std::vector<int64_t>{p.kB});
}

TEST(Views, WhatACallerIsGivenHasItsOwnMemory) {
  HeadsPlan p;
  p.plan.handed = p.b;
  Views views = p.views({kAlways, kAlways});
  EXPECT_FALSE(views.is_view(p.b));
  p.plan.handed = p.turned;
  views = p.views({kAlways, kAlways});
  EXPECT_FALSE(views.is_view(p.turned));
}

// One run of b behind every run of a: copies of it are made, whoever writes it.
TEST(Views, ARunForAllHeadsIsCopied) {
  HeadsPlan p;
  const ValueId one = p.value("one", p.kB), joined = p.value("joined_one", p.kAll);
  p.add(ops::Slice{p.both, 1, 0, one});
  p.add(ops::Join{p.y, one, 1, joined});
  p.plan.values[at(joined)].width = p.kAll + p.kB;
  const ValueId heads = p.value("heads", p.kAll);
  p.add(ops::Join{p.value("a2", p.kHeads * p.kA), one, p.kHeads, heads});
  const Views views = p.views({kAlways, kAlways});
  EXPECT_FALSE(parts_in_place(p.plan.ops.back().get<ops::Join>(), views).b);
  EXPECT_FALSE(parts_in_place(p.plan.ops.back().get<ops::Join>(), views).a) << "nobody writes it";
}

TEST(Views, AJoinInAJoin) {
  ops::Plan plan;
  for (const auto& [name, width] : {std::pair("x", 8), {"a", 8}, {"b", 8}, {"ab", 16}, {"c", 8}, {"abc", 24}})
    plan.values.push_back({name, width});
  plan.input = 0;
  const auto activate = [&](ValueId y) {
    plan.ops.push_back({ops::Record(ops::Activate{0, ops::ActivationFunction::silu, y}), "act", 0});
  };
  activate(1), activate(2), activate(4);
  plan.ops.push_back({ops::Record(ops::Join{1, 2, 1, 3}), "ab", 0});
  plan.ops.push_back({ops::Record(ops::Join{3, 4, 1, 5}), "abc", 0});
  const Views views = find_views(plan, Links(plan), {kAlways, kAlways});
  expect_view(views, 3, 5, 0, {24, 16, 16});
  expect_view(views, 1, 5, 0, {24, 8, 8});
  expect_view(views, 2, 5, 8, {24, 8, 8});
  expect_view(views, 4, 5, 16, {24, 8, 8});
}

// The memory of a joined value is there from its first part on, that of a sliced one until its last slice was read; and
// a view lies in it.
TEST(Views, TheirMemoryLivesAsLongAsAnyOfThem) {
  HeadsPlan p;
  const ops::ExecutorOptions options{.n_batch_max = 5, .n_outputs_max = 5};
  const Links links(p.plan);
  const Views views = find_views(p.plan, links, {kAlways, kAlways});
  const Twins twins = find_twins(p.plan, options, false);
  Steps steps;
  for (size_t i = 0; i < p.plan.ops.size(); ++i) steps.of_op.push_back(static_cast<int32_t>(i));
  steps.n = static_cast<int32_t>(p.plan.ops.size());
  Lifetimes lifetimes = find_lifetimes(p.plan, links, twins, steps);
  extend_to_views(views, lifetimes);
  share_in_place(p.plan, links, twins, steps, views, lifetimes);
  EXPECT_EQ(lifetimes.values[at(p.joined)].first_step, 0);
  EXPECT_EQ(lifetimes.values[at(p.joined)].last_step, 4);
  EXPECT_EQ(lifetimes.values[at(p.both)].last_step, 2);
  for (const Lifetime& life : lifetimes.values) EXPECT_EQ(life.in_place_of, kNone);
  const Placement placed = place_values(p.plan, twins, lifetimes, options, 64, &views);
  EXPECT_EQ(placed.values[at(p.turned)], placed.values[at(p.joined)] + p.kA * sizeof(float));
  EXPECT_EQ(placed.values[at(p.b)], placed.values[at(p.both)] + p.kA * sizeof(float));
  EXPECT_NE(placed.values[at(p.both)], placed.values[at(p.joined)]);
}

TEST(ValueLayout, ColumnsOfRuns) {
  const ops::ValueLayout layout{100, 4, 10};
  EXPECT_EQ(layout.place(0), 0);
  EXPECT_EQ(layout.place(4), 10);
  EXPECT_EQ(layout.place(9), 21);
  EXPECT_EQ(layout.left(9, 12), 3);
  const ops::ValueLayout rows = ops::ValueLayout::rows_of(12);
  EXPECT_TRUE(rows.is_dense(12));
  EXPECT_EQ(rows.place(9), 9);
  EXPECT_EQ(rows.left(9, 12), 3);
}

}  // namespace
}  // namespace assay::lower
