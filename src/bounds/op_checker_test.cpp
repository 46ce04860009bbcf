// The checker on healthy runs of small plans in every format, numerics and cache type, and on runs
// with one small error.
#include "bounds/op_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <variant>

#include "assay/error.h"
#include "bounds/rounding.h"
#include "gguf/file.h"
#include "model/build.h"
#include "ops/attention/attention.h"
#include "ops/attention/sparse_attention.h"
#include "ops/plan/op_values.h"
#include "ops/rows/rms_norm.h"
#include "support/checked_run.h"
#include "support/shared_data.h"
#include "support/tiny_plan.h"

namespace assay::bounds {
namespace {

using test::CheckedRun;
using test::CheckedSetting;
using test::TinyPlan;
using test::TinyShape;

TinyShape shape_of(const quant::Format& format) {
  TinyShape shape;
  shape.dtype = format.dtype;
  if (format.activation == quant::Activation::a256)
    shape.d_model = shape.d_ff = 256, shape.n_heads = 4, shape.head_dim = 64;
  return shape;
}

// The worst ratio and the tightness of each kind of op.
struct Slack {
  double worst = 0;
  std::vector<double> slack, declared_slack;
};
void collect(const OpChecker& checker, std::map<std::string, Slack>& kinds) {
  for (const OpFigures& f : checker.figures()) {
    Slack& s = kinds[f.kind];
    s.worst = std::max(s.worst, f.worst_ratio);
    if (f.local_error > 0) s.slack.push_back(f.bound / f.local_error);
    if (f.declared_error > 0) s.declared_slack.push_back(f.declared_bound / f.declared_error);
  }
}
double median(std::vector<double> x) {
  if (x.empty()) return 0;
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

TEST(OpChecker, HealthyRunsStayWithinTheirBoundsInEveryFormat) {
  base::ThreadPool pool(2);
  for (const CheckedSetting& setting : test::checked_settings()) {
    std::map<std::string, Slack> kinds;
    for (const quant::Format& format : quant::all_formats()) {
      const bool every = setting.name == "exact/15, cache f16";
      if (!every && format.dtype != tensor::DType::Q4_1 && format.dtype != tensor::DType::Q4_K &&
          format.dtype != tensor::DType::BF16)
        continue;
      const TinyPlan tiny(shape_of(format));
      CheckedRun run(tiny.plan, setting, pool, 64);
      const std::vector<int32_t> tokens = run.random_tokens(24, 5);
      run.run(std::span(tokens).first(17));
      for (size_t i = 17; i < 20; ++i) run.run(std::span(tokens).subspan(i, 1));
      run.run(std::span(tokens).subspan(20), 0, nullptr, false);
      EXPECT_EQ(run.failure(), "") << tensor::traits(format.dtype).name << ", " << setting.name;
      EXPECT_EQ(run.checker.figures().size(),
                tiny.plan.ops.size() - 2 - 2);  // less kv_store and select_outputs, two each
      collect(run.checker, kinds);
    }
    for (const auto& [kind, s] : kinds) {
      std::printf("%-22s %-10s worst %.3f  median slack %.1f  as declared %.1f\n", setting.name.c_str(), kind.c_str(),
                  s.worst, median(s.slack), median(s.declared_slack));
    }
  }
}

// Attention of families with heads of their own kind: values narrower than keys, values that lie in the keys, caches
// that several layers read; and beside it products of every head and experts with scales. A scale that is off by 0.3 %
// is seen in each.
TEST(OpChecker, GoldensOfFamiliesStayWithinTheirBoundsAndAWrongScaleDoesNot) {
  base::ThreadPool pool(2);
  const std::vector<CheckedSetting> settings = test::checked_settings();
  for (const char* name : {"mimo2", "deepseek2", "deepseek3-yarn", "gemma4-e", "gemma4-moe", "deepseek32", "glmdsa"}) {
    const gguf::File file = gguf::File::open(test::shared(std::string("goldens/arch/") + name + ".gguf"));
    const ops::Plan plan = model::build_model(file).plan;
    const auto run_all = [](CheckedRun& run) {
      const std::vector<int32_t> tokens = run.random_tokens(24, 5);
      run.run(std::span(tokens).first(17));
      for (size_t i = 17; i < 20; ++i) run.run(std::span(tokens).subspan(i, 1));
      run.truncate(0, 12);
      run.run(std::span(tokens).subspan(20));
    };
    for (const size_t i_setting : {0, 2, 8}) {
      CheckedRun run(plan, settings[i_setting], pool, 64);
      run_all(run);
      EXPECT_EQ(run.failure(), "") << name << ", " << settings[i_setting].name;
    }
    ops::Plan wrong = plan;
    ops::Op& op = *std::find_if(wrong.ops.begin(), wrong.ops.end(), [](const ops::Op& any) {
      return any.is<ops::Attention>() || any.is<ops::SparseAttention>();
    });
    if (auto* attention = op.as<ops::Attention>()) attention->scale *= 1.003;
    if (auto* sparse = op.as<ops::SparseAttention>()) sparse->scale *= 1.003;
    CheckedRun run(wrong, plan, settings[8], pool, 64);
    run_all(run);
    ASSERT_TRUE(run.checker.place().has_value()) << name;
    EXPECT_EQ(run.checker.place()->op, op.name) << name;
  }
}

// Two sequences in chunks, one of them cut back and run on.
void run_everything(CheckedRun& run) {
  const std::vector<int32_t> tokens = run.random_tokens(40, 7);
  const auto part = [&](size_t begin, size_t n) { return std::span(tokens).subspan(begin, n); };
  run.run(part(0, 13));
  run.run(part(13, 6), 1);
  run.run(part(19, 1), 0);
  run.run(part(20, 9), 1);
  run.truncate(0, 5);
  run.run(part(29, 8), 0);
}

TinyShape gemma_shape() {
  TinyShape shape;
  shape.gemma = true;
  shape.window = 6;
  shape.n_layers = 3;
  return shape;
}

TEST(OpChecker, TheChainIsTheOracle) {
  base::ThreadPool pool(2);
  for (const TinyShape& shape : {TinyShape{}, gemma_shape()}) {
    const TinyPlan tiny(shape);
    const std::vector<CheckedSetting> settings = test::checked_settings();
    CheckedRun oracle(tiny.plan, settings[0], pool, 64, 2), other(tiny.plan, settings[2], pool, 64, 2);
    run_everything(oracle);
    run_everything(other);
    EXPECT_EQ(oracle.failure(), "");
    EXPECT_EQ(other.failure(), "");
    const std::span<const double> chain = other.checker.chain_logits();
    ASSERT_EQ(chain.size(), static_cast<size_t>(8 * shape.vocab_size));
    std::vector<double> expected(static_cast<size_t>(shape.vocab_size));
    for (int64_t i = 0; i < 8; ++i) {
      oracle.executor->read_logits(i, expected);
      double error = 0, norm = 0;
      for (size_t j = 0; j < expected.size(); ++j) {
        error = std::max(error, std::fabs(chain[static_cast<size_t>(i * shape.vocab_size) + j] - expected[j]));
        norm = std::max(norm, std::fabs(expected[j]));
      }
      EXPECT_LE(error, 1e-12 * norm);
    }
    for (const OpFigures& f : oracle.checker.figures()) EXPECT_LE(f.cumulative_error, 1e-12) << f.op;
    for (const OpFigures& f : other.checker.figures()) EXPECT_GE(f.cumulative_error, 0) << f.op;
  }
}

// Hands on what it sees, with changes, and leaves out what it is told to.
class Tamper final : public ops::OpObserver {
 public:
  explicit Tamper(OpChecker& checker) : checker_(checker) {}
  bool wants(const ops::Op& op) override { return checker_.wants(op); }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
    if (missing && missing(op)) return;
    std::vector<double> changed(values.begin(), values.end());
    if (change && &op == target) change(changed, width);
    checker_.on_op(op, n_rows, width, changed);
  }
  const ops::Op* target = nullptr;
  std::function<void(std::vector<double>& values, int64_t width)> change;
  std::function<bool(const ops::Op&)> missing;

 private:
  OpChecker& checker_;
};

constexpr int64_t kRow = 5;

// One run of 9 tokens in which one op's output is changed on its way to the checker.
struct Tampered {
  Tampered(const TinyPlan& tiny, const CheckedSetting& setting, base::ThreadPool& pool, size_t i_op,
           std::function<void(std::vector<double>&, int64_t)> change)
      : run(tiny.plan, setting, pool, 16) {
    Tamper tamper(run.checker);
    tamper.target = &tiny.plan.ops[i_op];
    tamper.change = std::move(change);
    run.run(run.random_tokens(9, 3), 0, &tamper);
  }
  CheckedRun run;
};

TEST(OpChecker, OneElementOffByFourBoundsIsFoundWhereItIs) {
  base::ThreadPool pool(2);
  const TinyPlan tiny(gemma_shape());
  for (const size_t i_setting : {1, 2, 3}) {
    const CheckedSetting setting = test::checked_settings()[i_setting];
    for (size_t i_op = 0; i_op < tiny.plan.ops.size(); ++i_op) {
      const ops::Op& op = tiny.plan.ops[i_op];
      if (std::string(ops::kind_name(op)) == "kv_store" || std::string(ops::kind_name(op)) == "select_outputs")
        continue;
      const auto at = [&](int64_t width) { return static_cast<size_t>(kRow * width + width - 3); };
      const Tampered gross(tiny, setting, pool, i_op,
                           [&](std::vector<double>& values, int64_t width) { values[at(width)] = 1e9; });
      const FailedOp& failed = *gross.run.checker.first_failure();
      const Expected& e = failed.expected;
      const size_t i = at(failed.width);
      const bool tighter = !e.declared_bound.empty() && e.declared_bound[i] < e.bound[i];
      const double y = tighter ? e.declared_y[i] : e.y[i], bound = tighter ? e.declared_bound[i] : e.bound[i];
      const Tampered run(tiny, setting, pool, i_op,
                         [&](std::vector<double>& values, int64_t width) { values[at(width)] = y + 4 * bound; });
      ASSERT_TRUE(run.run.checker.place().has_value()) << op.name << ", " << setting.name;
      const Place& place = *run.run.checker.place();
      EXPECT_EQ(run.run.checker.first_failure()->i_op, static_cast<int32_t>(i_op)) << op.name << ", found " << place.op;
      EXPECT_EQ(place.op, op.name);
      EXPECT_EQ(place.layer, op.layer);
      EXPECT_EQ(place.row, kRow);
      EXPECT_EQ(place.position, kRow);
      EXPECT_EQ((place.head < 0 ? 0 : place.head * 32) + place.element, failed.width - 3);
      EXPECT_NEAR((place.found - place.expected) / place.bound, 4, 0.05);
      const bool has_heads = op.name == "attention" || op.name.starts_with("attn_q") || op.name.starts_with("attn_k") ||
                             op.name == "attn_v";
      EXPECT_EQ(place.head >= 0, has_heads) << op.name;
    }
  }
}

TEST(OpChecker, SwappedRowsPoisonAndHiddenPoisonAreFound) {
  base::ThreadPool pool(2);
  const TinyPlan tiny(TinyShape{});
  const CheckedSetting setting = test::checked_settings()[2];
  for (size_t i_op = 0; i_op < tiny.plan.ops.size(); ++i_op) {
    const ops::Op& op = tiny.plan.ops[i_op];
    if (std::string(ops::kind_name(op)) == "kv_store" || std::string(ops::kind_name(op)) == "select_outputs") continue;
    const Tampered swapped(tiny, setting, pool, i_op, [&](std::vector<double>& values, int64_t width) {
      std::swap_ranges(values.begin() + 2 * width, values.begin() + 3 * width, values.begin() + 6 * width);
    });
    ASSERT_TRUE(swapped.run.checker.place().has_value()) << op.name;
    EXPECT_EQ(swapped.run.checker.first_failure()->i_op, static_cast<int32_t>(i_op)) << op.name;
    EXPECT_TRUE(swapped.run.checker.place()->row == 2 || swapped.run.checker.place()->row == 6) << op.name;
    const Tampered poisoned(tiny, setting, pool, i_op, [&](std::vector<double>& values, int64_t width) {
      values[static_cast<size_t>(4 * width)] = NAN;
    });
    ASSERT_TRUE(poisoned.run.checker.place().has_value()) << op.name;
    EXPECT_EQ(poisoned.run.checker.first_failure()->i_op, static_cast<int32_t>(i_op)) << op.name;
    EXPECT_EQ(poisoned.run.checker.place()->row, 4);
  }
  EXPECT_TRUE(std::isinf(excess(1.0, NAN, 1.0)));  // poison that disappeared
  EXPECT_EQ(excess(NAN, NAN, 1.0), 0);
  EXPECT_TRUE(std::isinf(excess(NAN, 1.0, 1.0)));
  EXPECT_TRUE(std::isinf(excess(INFINITY, 1.0, 1.0)));
  EXPECT_EQ(excess(INFINITY, 1e39, 1e30), 0);
}

// An executor with another plan: what a wrong implementation looks like.
TEST(OpChecker, AnOpThatIsMissingInTheDumpIsComputedInItsPlace) {
  base::ThreadPool pool(2);
  for (const size_t i_setting : {0, 1, 2}) {
    const CheckedSetting setting = test::checked_settings()[i_setting];
    const TinyPlan tiny(gemma_shape());
    const auto leave_out = [](const ops::Op& op) {
      return op.name != "residual" && op.name != "attention" && op.name != "output";
    };
    CheckedRun healthy(tiny.plan, setting, pool, 16);
    Tamper tamper(healthy.checker);
    tamper.missing = leave_out;
    healthy.run(healthy.random_tokens(9, 3), 0, &tamper);
    EXPECT_EQ(healthy.failure(), "") << setting.name;
    EXPECT_EQ(healthy.checker.figures().size(), 7u);

    ops::Plan wrong = tiny.plan;
    for (double& frequency : wrong.ropes[0].inverse_frequency) frequency *= 1.5;
    CheckedRun whole(wrong, tiny.plan, setting, pool, 16), sparse(wrong, tiny.plan, setting, pool, 16);
    whole.run(whole.random_tokens(9, 3));
    ASSERT_TRUE(whole.checker.place().has_value());
    EXPECT_EQ(whole.checker.place()->op, "attn_q_rope");
    EXPECT_EQ(whole.checker.place()->layer, 0);
    EXPECT_GT(whole.checker.place()->position, 0);
    Tamper sparse_tamper(sparse.checker);
    sparse_tamper.missing = leave_out;
    sparse.run(sparse.random_tokens(9, 3), 0, &sparse_tamper);
    ASSERT_TRUE(sparse.checker.place().has_value());
    EXPECT_EQ(sparse.checker.place()->op, "attention");
    EXPECT_EQ(sparse.checker.place()->layer, 0);
  }
}

TEST(OpChecker, StopsAtTheFirstFailureWhereAsked) {
  base::ThreadPool pool(2);
  const TinyPlan tiny(TinyShape{});
  ops::Plan wrong = tiny.plan;
  for (ops::Op& op : wrong.ops) {
    if (auto* norm = op.as<ops::RmsNorm>()) norm->eps = 1e-2f;
  }
  CheckedRun run(wrong, tiny.plan, test::checked_settings()[1], pool, 32, 1, {.stop_at_first = true});
  run.run(run.random_tokens(9, 3));
  run.run(run.random_tokens(2, 4));
  ASSERT_TRUE(run.checker.place().has_value());
  EXPECT_EQ(run.checker.place()->op, "attn_norm");
  ASSERT_EQ(run.checker.figures().size(), 2u);  // embed and the norm
  EXPECT_GT(run.checker.figures()[1].n_outside, 0);
  EXPECT_EQ(run.checker.first_failure()->found.size(), static_cast<size_t>(9 * 64));
  EXPECT_EQ(run.checker.first_failure()->a.size(), static_cast<size_t>(9 * 64));
}

TEST(OpChecker, RefusesWhatDoesNotFitThePlan) {
  base::ThreadPool pool(1);
  const TinyPlan tiny(TinyShape{});
  const auto begin = [&](std::vector<int32_t> tokens, std::vector<int32_t> positions, std::vector<int32_t> sequences,
                         std::vector<uint8_t> outputs) {
    OpChecker checker(tiny.plan, Declared{}, 8, 2, pool);
    checker.begin({tokens, positions, sequences, outputs});
    return checker.wants(tiny.plan.ops[0]);
  };
  EXPECT_TRUE(begin({1, 2}, {0, 1}, {}, {0, 1}));
  EXPECT_TRUE(begin({1, 2}, {0, 0}, {0, 1}, {0, 1}));
  EXPECT_THROW(begin({1, 64}, {0, 1}, {}, {0, 1}), Error);
  EXPECT_THROW(begin({1, -1}, {0, 1}, {}, {0, 1}), Error);
  EXPECT_THROW(begin({1, 2}, {0, 2}, {}, {0, 1}), Error);
  EXPECT_THROW(begin({1, 2}, {1, 2}, {}, {0, 1}), Error);
  EXPECT_THROW(begin({1}, {-1}, {}, {1}), Error);
  EXPECT_THROW(begin({1, 2}, {0, 1}, {0, 2}, {0, 1}), Error);
  EXPECT_THROW(begin({1, 2}, {0, 1}, {0}, {0, 1}), Error);
  EXPECT_THROW(begin({1, 2}, {0}, {}, {0, 1}), Error);
  EXPECT_THROW(begin(std::vector<int32_t>(9, 1), {0, 1, 2, 3, 4, 5, 6, 7, 8}, {}, std::vector<uint8_t>(9, 1)), Error);
  OpChecker checker(tiny.plan, Declared{}, 8, 1, pool);
  const std::vector<int32_t> tokens = {1, 2}, positions = {0, 1};
  const std::vector<uint8_t> outputs = {0, 1};
  checker.begin({tokens, positions, {}, outputs});
  const std::vector<double> values(2 * 64);
  EXPECT_THROW(checker.on_op(tiny.plan.ops[0], 2, 32, values), Error);
  EXPECT_THROW(checker.on_op(tiny.plan.ops[0], 1, 64, std::span(values).first(64)), Error);
  EXPECT_THROW(checker.on_op(tiny.plan.ops[0], 2, 64, std::span(values).first(64)), Error);
}

}  // namespace
}  // namespace assay::bounds
