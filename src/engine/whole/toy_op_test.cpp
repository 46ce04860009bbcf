// Ops that no backend knows run on every one, by their reference: with equal bits by every kernel set, number of
// threads and of shards, and near to the float64 of the oracle. On GPUs: cuda_arch_test.cpp, vulkan_golden_test.cpp.
#include "support/engine/toy_op.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/oracle/oracle_executor.h"
#include "ops/attention/attention.h"
#include "support/engine/cpu_shards.h"
#include "support/engine/executor_runs.h"
#include "support/tiny_plan.h"

namespace assay::engine {
namespace {

using test::options_of, test::run_all, test::Seen, test::ToyKind;

ops::ExecutorOptions usual_options() { return options_of(ops::CacheType::f16, false, 2); }

struct ToyPlan {
  explicit ToyPlan(ToyKind kind) : at(test::add_toy(tiny.plan, kind)) {}
  const ops::Op& op() const { return tiny.plan.ops[static_cast<size_t>(at)]; }
  const ops::Op& gate() const { return tiny.plan.ops[static_cast<size_t>(at - 1)]; }
  test::TinyPlan tiny{test::TinyShape{}};
  int32_t at;
};

Seen seen_by_reference(const ToyPlan& toy) {
  base::ThreadPool pool(1);
  return run_all(*backend::cpu::make_cpu_executor(toy.tiny.plan, usual_options(), {Kernels::reference}, pool), true);
}

TEST(ToyOp, ComputesWhatItSays) {
  const ToyPlan toy(ToyKind::row);
  const Seen seen = seen_by_reference(toy);
  const std::vector<double>&x = seen.values.at(&toy.gate()), &y = seen.values.at(&toy.op());
  ASSERT_EQ(x.size(), y.size());
  ASSERT_FALSE(x.empty());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 1.0f - static_cast<float>(x[i]));
}

// Key and value of every position as the cache's types read them back.
TEST(ToyOp, ReadsTheCacheInEveryType) {
  const ToyPlan toy(ToyKind::cached);
  const auto& op = toy.op().get<test::ToyCached>();
  const int64_t width = toy.tiny.plan.values[static_cast<size_t>(op.y)].width,
                dim = toy.tiny.plan.cache_layers[0].head_dim;
  for (const ops::CacheType type : {ops::CacheType::f32, ops::CacheType::f16, ops::CacheType::q8_0}) {
    base::ThreadPool pool(2);
    const auto executor = backend::cpu::make_cpu_executor(toy.tiny.plan, options_of(type, false, 2), {}, pool);
    Seen seen;
    test::Keeper keeper(seen);
    const std::vector<int32_t> tokens = {3}, positions = {0};
    const std::vector<uint8_t> outputs = {1};
    executor->run({tokens, positions, {}, outputs, {.observer = &keeper}});
    std::vector<std::byte> rows;  // one position: the keys of both heads of layer 0, then its values
    executor->visit_cache(0,
                          [&](std::span<const std::byte> part) { rows.insert(rows.end(), part.begin(), part.end()); });
    const auto head_bytes = static_cast<size_t>(ops::cache_row_bytes(type, dim));
    std::vector<float> stored(static_cast<size_t>(4 * dim));
    for (size_t i = 0; i < 4; ++i)
      ops::cache_decode_ref(type, rows.data() + i * head_bytes, dim, stored.data() + i * static_cast<size_t>(dim));
    const std::vector<double>&x = seen.values.at(&toy.gate()), &y = seen.values.at(&toy.op());
    ASSERT_EQ(y.size(), static_cast<size_t>(width));
    for (size_t j = 0; j < y.size(); ++j) {
      const size_t column = j % static_cast<size_t>(2 * dim);
      const float difference = stored[column] - stored[static_cast<size_t>(2 * dim) + column];
      EXPECT_EQ(static_cast<float>(y[j]), static_cast<float>(x[j]) + difference) << j;
    }
  }
}

TEST(ToyOp, RunsByEverySetAndNumberOfThreadsAndIsSaidToBeBorrowed) {
  for (const ToyKind kind : test::kToyKinds) {
    const ToyPlan toy(kind);
    const Seen expected = seen_by_reference(toy);
    for (const Kernels set : backend::cpu::kernel_sets()) {
      for (const int n_threads : {1, 3}) {
        base::ThreadPool pool(n_threads);
        const auto executor = backend::cpu::make_cpu_executor(toy.tiny.plan, usual_options(), {set}, pool);
        EXPECT_TRUE(run_all(*executor, true) == expected)
            << name(kind) << " by " << name(set) << ", " << n_threads << " threads";
        const auto uses = executor->kernels_of(toy.at);
        ASSERT_EQ(uses.size(), 1u);
        EXPECT_EQ(uses[0].name, "reference");
        EXPECT_EQ(uses[0].borrowed, set != Kernels::reference);
      }
    }
  }
}

TEST(ToyOp, RunsInShards) {
  for (const ToyKind kind : test::kToyKinds) {
    const ToyPlan toy(kind);
    const Seen expected = seen_by_reference(toy);
    for (const int n : {2, 4}) {
      test::CpuShards shards(toy.tiny.plan, usual_options(), n, backend::cpu::best_kernel_set());
      EXPECT_TRUE(run_all(*shards, true) == expected) << name(kind) << ", " << n << " shards";
    }
  }
}

TEST(ToyOp, RunsInTheOracle) {
  for (const ToyKind kind : {ToyKind::state, ToyKind::cached}) {
    const ToyPlan toy(kind);
    base::ThreadPool pool(1);
    const Seen near = seen_by_reference(toy);
    const Seen exact = run_all(*backend::oracle::make_oracle_executor(toy.tiny.plan, usual_options(), pool), true);
    const std::vector<double>&by_float = near.values.at(&toy.op()), &by_double = exact.values.at(&toy.op());
    ASSERT_EQ(by_float.size(), by_double.size());
    for (size_t i = 0; i < by_float.size(); ++i) EXPECT_NEAR(by_float[i], by_double[i], 0.05) << name(kind);
  }
  const ToyPlan toy(ToyKind::row);
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
