// How many rows a domain has and whose they are; and a plan whose values have rows that do not fit is refused.
#include "ops/plan/row_domain.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "assay/error.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/plan/plan.h"
#include "ops/plan/plan_check.h"
#include "ops/plan/work.h"
#include "ops/rows/activate.h"
#include "ops/rows/select_outputs.h"

namespace assay::ops {
namespace {

TEST(RowDomain, RowsAreThoseOfItsTokens) {
  EXPECT_EQ(RowDomain::tokens.n_rows(7, 3), 7);
  EXPECT_EQ(RowDomain::outputs.n_rows(7, 3), 3);
  EXPECT_EQ(RowDomain::tokens.routed(4).n_rows(7, 3), 28);
  EXPECT_EQ(RowDomain::outputs.routed(4).n_rows(7, 3), 12);
  EXPECT_EQ(RowDomain::outputs.routed(4).n_rows(7, 0), 0);
}

TEST(RowDomain, NamesTheTokenBehindARow) {
  const std::vector<int64_t> selected = {2, 5};
  const auto tokens_of = [&](const RowDomain& domain) {
    std::vector<int64_t> tokens;
    for (int64_t row = 0; row < domain.n_rows(3, 2); ++row) tokens.push_back(domain.token_of(row, selected));
    return tokens;
  };
  using Tokens = std::vector<int64_t>;
  EXPECT_EQ(tokens_of(RowDomain::tokens), (Tokens{0, 1, 2}));
  EXPECT_EQ(tokens_of(RowDomain::outputs), (Tokens{2, 5}));
  EXPECT_EQ(tokens_of(RowDomain::tokens.routed(2)), (Tokens{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(tokens_of(RowDomain::outputs.routed(3)), (Tokens{2, 2, 2, 5, 5, 5}));
}

TEST(RowDomain, OfOneRankIsStillRouted) {
  const RowDomain routed = RowDomain::tokens.routed(1);
  EXPECT_TRUE(routed.is_routed());
  EXPECT_FALSE(routed.is_of_outputs());
  EXPECT_NE(routed, RowDomain::tokens);
  EXPECT_TRUE(RowDomain::outputs.routed(2).is_of_outputs());
  EXPECT_NE(RowDomain::tokens.routed(2), RowDomain::tokens.routed(3));
}

// Three experts of which each token goes to two, of all tokens or of those whose logits are wanted.
class RoutedPlan {
 public:
  static constexpr int64_t kD = 4, kWidth = 5, kExperts = 3, kUsed = 2;

  explicit RoutedPlan(bool of_outputs, bool with_scale = false) {
    const RowDomain all = of_outputs ? RowDomain::outputs : RowDomain::tokens, routed = all.routed(kUsed);
    plan_.d_model = kD, plan_.vocab_size = kD;
    plan_.input = value("x", kD, RowDomain::tokens);
    ValueId x = plan_.input;
    const auto select = [&] {
      const ValueId y = value("selected", kD, RowDomain::outputs);
      add(SelectOutputs{x, y});
      x = y;
    };
    if (of_outputs) select();
    const ValueId logits = value("logits", kExperts, all), routes = value("routes", 2 * kUsed, all);
    add(Linear{x, weight(kExperts, kD), kNone, logits, kNone});
    add(Route{logits, kNone, Gating::softmax, kUsed, true, 1.0, routes});
    if (with_scale) {
      const ValueId scaled = value("scaled", kD, routed);
      add(ExpertScale{x, routes, kUsed, scaled});
      x = scaled;
    }
    const ValueId up = value("up", kWidth, routed), act = value("act", kWidth, routed),
                  down = value("down", kD, routed), sum = value("sum", kD, all);
    add(ExpertLinear{x, routes, weight(kExperts * kWidth, kD), kNone, kExperts, kUsed, kD, kWidth, up});
    add(Activate{up, ActivationFunction::silu, act});
    add(ExpertLinear{act, routes, weight(kExperts * kD, kWidth), kNone, kExperts, kUsed, kWidth, kD, down});
    add(ExpertSum{down, routes, kUsed, !with_scale, sum});
    x = sum;
    if (!of_outputs) select();
    plan_.hidden = x;
  }

  Plan& plan() { return plan_; }

 private:
  ValueId value(const std::string& name, int64_t width, const RowDomain& domain) {
    plan_.values.push_back({name, width, domain});
    return static_cast<ValueId>(plan_.values.size() - 1);
  }
  WeightId weight(int64_t rows, int64_t cols) {
    Weight w;
    w.view.dtype = tensor::DType::F32;
    w.view.shape = {{rows, cols, 1, 1}, 2};
    plan_.weights.push_back(w);
    return static_cast<WeightId>(plan_.weights.size() - 1);
  }
  template <class R>
  void add(R record) {
    plan_.ops.push_back({std::move(record), "op " + std::to_string(plan_.ops.size()), 0});
  }

  Plan plan_;
};

const ExecutorOptions kOptions{.n_ctx = 8, .n_batch_max = 4, .n_outputs_max = 4};

TEST(RowDomain, PlansWithRowsThatFitAreTaken) {
  for (const bool of_outputs : {false, true}) {
    for (const bool with_scale : {false, true})
      EXPECT_NO_THROW(check_plan(RoutedPlan(of_outputs, with_scale).plan(), kOptions));
  }
}

TEST(RowDomain, AnyValueWithOtherRowsIsRefused) {
  const RowDomain domains[] = {RowDomain::tokens, RowDomain::outputs, RowDomain::tokens.routed(2),
                               RowDomain::outputs.routed(2), RowDomain::tokens.routed(3)};
  for (const bool of_outputs : {false, true}) {
    const size_t n_values = RoutedPlan(of_outputs, true).plan().values.size();
    for (size_t i = 0; i < n_values; ++i) {
      for (const RowDomain& domain : domains) {
        RoutedPlan changed(of_outputs, true);
        Value& value = changed.plan().values[i];
        if (value.domain == domain) continue;
        value.domain = domain;
        EXPECT_THROW(check_plan(changed.plan(), kOptions), Error)
            << value.name << ", kind " << static_cast<int>(domain.kind);
      }
    }
  }
}

TEST(RowDomain, TheRefusalNamesTheValueAndItsRows) {
  RoutedPlan changed(false);
  for (Value& value : changed.plan().values) {
    if (value.name == "act") value.domain = RowDomain::tokens;
  }
  try {
    check_plan(changed.plan(), kOptions);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::unsupported);
    EXPECT_STREQ(error.what(),
                 "op 3: act with a row for every token in place of 2 routed rows for every token cannot be run");
  }
}

TEST(RowDomain, WorkCountsTheRowsOfEveryRank) {
  RoutedPlan routed(false);
  const Plan& plan = routed.plan();
  const RunShape shape{.n_tokens = 6, .n_outputs = 2, .n_sequences = 3};
  const WorkScope scope(plan, kOptions, shape);
  for (const Op& op : plan.ops) {
    const auto* product = op.as<ExpertLinear>();
    if (product == nullptr) continue;
    EXPECT_EQ(scope.n_rows(product->y), 3 * 6 * RoutedPlan::kUsed);
    EXPECT_EQ(product->work(scope).multiply_adds, 3 * 6 * RoutedPlan::kUsed * product->d_in * product->d_out);
  }
}

}  // namespace
}  // namespace assay::ops
