// Ops that no backend knows run on every one, by their reference: with equal bits by every kernel set, number of
// threads and of shards, and near to the float64 of the oracle. On GPUs: cuda_arch_test.cpp, vulkan_golden_test.cpp.
#include "support/engine/toy_op.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/oracle/oracle_executor.h"
#include "support/engine/cpu_shards.h"
#include "support/engine/executor_runs.h"
#include "support/tiny_plan.h"

namespace assay::engine {
namespace {

using backend::cpu::KernelSet;
using test::options_of, test::run_all, test::Seen;

ops::ExecutorOptions usual_options() { return options_of(ops::CacheType::f16, false, 2); }

struct ToyPlan {
  explicit ToyPlan(bool keeps_state) : at(keeps_state ? test::add_toy_state(tiny.plan) : test::add_toy(tiny.plan)) {}
  const ops::Op& op() const { return tiny.plan.ops[static_cast<size_t>(at)]; }
  const ops::Op& gate() const { return tiny.plan.ops[static_cast<size_t>(at - 1)]; }
  test::TinyPlan tiny{test::TinyShape{}};
  int32_t at;
};

Seen seen_by_reference(const ToyPlan& toy) {
  base::ThreadPool pool(1);
  return run_all(*backend::cpu::make_cpu_executor(toy.tiny.plan, usual_options(), {KernelSet::reference}, pool), true);
}

TEST(ToyOp, ComputesWhatItSays) {
  const ToyPlan toy(false);
  const Seen seen = seen_by_reference(toy);
  const std::vector<double>&x = seen.values.at(&toy.gate()), &y = seen.values.at(&toy.op());
  ASSERT_EQ(x.size(), y.size());
  ASSERT_FALSE(x.empty());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 1.0f - static_cast<float>(x[i]));
}

TEST(ToyOp, RunsByEverySetAndNumberOfThreadsAndIsSaidToBeBorrowed) {
  for (const bool keeps_state : {false, true}) {
    const ToyPlan toy(keeps_state);
    const Seen expected = seen_by_reference(toy);
    for (const KernelSet set : backend::cpu::kernel_sets()) {
      for (const int n_threads : {1, 3}) {
        base::ThreadPool pool(n_threads);
        const auto executor = backend::cpu::make_cpu_executor(toy.tiny.plan, usual_options(), {set}, pool);
        EXPECT_TRUE(run_all(*executor, true) == expected) << name(set) << ", " << n_threads << " threads";
        const auto uses = executor->kernels_of(toy.at);
        ASSERT_EQ(uses.size(), 1u);
        EXPECT_EQ(uses[0].name, "reference");
        EXPECT_EQ(uses[0].borrowed, set != KernelSet::reference);
      }
    }
  }
}

TEST(ToyOp, RunsInShards) {
  for (const bool keeps_state : {false, true}) {
    const ToyPlan toy(keeps_state);
    const Seen expected = seen_by_reference(toy);
    for (const int n : {2, 4}) {
      test::CpuShards shards(toy.tiny.plan, usual_options(), n, backend::cpu::best_kernel_set());
      EXPECT_TRUE(run_all(*shards, true) == expected) << keeps_state << ", " << n << " shards";
    }
  }
}

TEST(ToyOp, RunsInTheOracle) {
  const ToyPlan toy(false);
  base::ThreadPool pool(1);
  const Seen near = seen_by_reference(toy);
  const Seen exact = run_all(*backend::oracle::make_oracle_executor(toy.tiny.plan, usual_options(), pool), true);
  const std::vector<double>&x = exact.values.at(&toy.gate()), &y = exact.values.at(&toy.op());
  ASSERT_FALSE(x.empty());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 1.0 - x[i]);
  for (size_t i = 0; i < exact.logits.size(); ++i) {
    for (size_t j = 0; j < exact.logits[i].size(); ++j) EXPECT_NEAR(near.logits[i][j], exact.logits[i][j], 0.05);
  }
}

}  // namespace
}  // namespace assay::engine
