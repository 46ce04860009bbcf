// Ops with a state, watched by the checker: healthy runs of every family's golden stay within their bounds, in chunks,
// token by token and in two sequences; a decay, a tail or a state that is off is seen, at the op that has it; and a
// state cannot be taken back.
#include "bounds/state_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "assay/error.h"
#include "gguf/file.h"
#include "model/build.h"
#include "ops/plan/op_values.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"
#include "support/checked_run.h"
#include "support/shared_data.h"

namespace assay::bounds {
namespace {

gguf::File state_golden(const std::string& name) {
  return gguf::File::open(test::shared("goldens/arch/" + name + ".gguf"));
}

void run_two_sequences(test::CheckedRun& run) {
  const std::vector<int32_t> tokens = run.random_tokens(64, 5);
  const auto part = [&](size_t begin, size_t n) { return std::span(tokens).subspan(begin, n); };
  run.run(part(0, 17));
  run.run(part(17, 5), 1);
  for (size_t i = 22; i < 26; ++i) run.run(part(i, 1), static_cast<int>(i % 2));
  run.run(part(26, 30));
}

// The checker on a run that announces the op's output changed.
class StateTamper final : public ops::OpObserver {
 public:
  StateTamper(OpChecker& checker, const ops::Op& target) : checker_(checker), target_(target) {}
  bool wants(const ops::Op& op) override { return checker_.wants(op); }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
    std::vector<double> changed(values.begin(), values.end());
    if (&op == &target_) changed.back() *= 1.0 + 1e-3;
    checker_.on_op(op, n_rows, width, changed);
  }

 private:
  OpChecker& checker_;
  const ops::Op& target_;
};

TEST(StateBound, HealthyRunsOfEveryFamilyStayWithinTheirBounds) {
  base::ThreadPool pool(2);
  const std::vector<test::CheckedSetting> settings = test::checked_settings();
  for (const char* name : {"qwen35", "qwen3next", "lfm2", "falconh1", "mamba", "mamba2", "kimilinear", "bailing3",
                           "qwen4exp", "gemma3n"}) {
    const gguf::File file = state_golden(name);
    const ops::Plan plan = model::build_model(file).plan;
    for (const size_t i_setting : {0, 2, 7}) {
      test::CheckedRun run(plan, settings[i_setting], pool, 64, 2);
      run_two_sequences(run);
      EXPECT_EQ(run.failure(), "") << name << ", " << settings[i_setting].name;
      for (const OpFigures& f : run.checker.figures()) {
        const bool kept = f.kind == "delta_rule" || f.kind == "selective_scan" || f.kind == "causal_conv";
        EXPECT_LT(kept ? f.bound : 0, 1e-3) << name << " " << f.op;
      }
    }
  }
}

TEST(StateBound, AnOutputThatIsOffByAThousandthIsSeen) {
  base::ThreadPool pool(2);
  const test::CheckedSetting setting = test::checked_settings()[2];
  for (const char* name : {"qwen35", "mamba", "mamba2", "kimilinear"}) {
    const gguf::File file = state_golden(name);
    const ops::Plan plan = model::build_model(file).plan;
    for (const ops::Op& op : plan.ops) {
      if (!keeps_state(op) || op.layer != 0) continue;
      test::CheckedRun run(plan, setting, pool, 64);
      const std::vector<int32_t> tokens = run.random_tokens(24, 5);
      StateTamper tamper(run.checker, op);
      run.run(std::span(tokens).first(20), 0, &tamper);
      ASSERT_TRUE(run.checker.place().has_value()) << name << " " << op.name;
      EXPECT_EQ(run.checker.place()->op, op.name) << name;
      EXPECT_EQ(run.checker.place()->position, 19) << name;
    }
  }
}

// A plan whose keys are read from another head, or whose groups are others: the checker names the op.
TEST(StateBound, WrongHeadsAreSeen) {
  base::ThreadPool pool(2);
  const test::CheckedSetting setting = test::checked_settings()[2];
  const auto expect_named = [&](const char* name, auto&& change) {
    const gguf::File file = state_golden(name);
    const ops::Plan plan = model::build_model(file).plan;
    ops::Plan wrong = plan;
    const std::string changed = change(wrong);
    test::CheckedRun run(wrong, plan, setting, pool, 64);
    run.run(run.random_tokens(12, 3));
    ASSERT_TRUE(run.checker.place().has_value()) << name;
    EXPECT_EQ(run.checker.place()->op, changed) << name;
  };
  expect_named("qwen35", [](ops::Plan& plan) {
    ops::Op& op = *std::ranges::find_if(plan.ops, [](const ops::Op& any) { return any.is<ops::DeltaRule>(); });
    op.get<ops::DeltaRule>().tiled = false;
    return op.name;
  });
  expect_named("mamba2", [](ops::Plan& plan) {
    ops::Op& op = *std::ranges::find_if(plan.ops, [](const ops::Op& any) { return any.is<ops::SelectiveScan>(); });
    std::swap(op.get<ops::SelectiveScan>().b, op.get<ops::SelectiveScan>().c);
    return op.name;
  });
}

TEST(StateBound, AStateCannotBeTakenBackButToTheBeginning) {
  base::ThreadPool pool(1);
  const gguf::File file = state_golden("lfm2");
  const ops::Plan plan = model::build_model(file).plan;
  test::CheckedRun run(plan, test::checked_settings()[2], pool, 64);
  const std::vector<int32_t> tokens = run.random_tokens(12, 3);
  run.run(tokens);
  run.truncate(0, 0);
  run.run(tokens);
  EXPECT_EQ(run.failure(), "");
  run.truncate(0, 0);
  run.truncate(0, 5);
  EXPECT_THROW(run.run(tokens), Error);
}

}  // namespace
}  // namespace assay::bounds
