// A plan on 2 to 8 executors side by side has the bits of the plan on one: logits, cache and what an observer sees, in
// every format and setting, for plans whose heads and rows divide evenly, unevenly or not at all. shard_real_test.cpp
// has the real models.
#include "engine/executors/shard_executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "assay/error.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "support/engine/cpu_shards.h"
#include "support/engine/executor_runs.h"
#include "support/tiny_plan.h"

namespace assay::engine {
namespace {

using test::CpuShards, test::options_of, test::run_all, test::Seen;

TEST(ShardExecutor, AnyNumberOfShardsHasTheBitsOfOneExecutor) {
  base::ThreadPool pool(1);
  const auto best = backend::cpu::best_kernel_set();
  const test::TinyShape shapes[] = {
      {.n_layers = 2, .window = 9, .dtype = tensor::DType::Q4_1},
      {.n_layers = 2, .window = 9, .dtype = tensor::DType::Q8_0, .gemma = true, .tied = true},
      {.d_model = 288, .n_heads = 9, .n_kv_heads = 3, .dtype = tensor::DType::F16, .biases = true}};
  for (const test::TinyShape& shape : shapes) {
    const test::TinyPlan tiny(shape);
    for (const ops::CacheType cache : {ops::CacheType::f16, ops::CacheType::q8_0, ops::CacheType::f32}) {
      for (const auto& [as_f32, planes] : {std::pair(false, 2), std::pair(false, 1), std::pair(true, 2)}) {
        const ops::ExecutorOptions options = options_of(cache, as_f32, planes);
        const auto whole = backend::cpu::make_cpu_executor(tiny.plan, options, {best}, pool);
        const Seen expected = run_all(*whole, true);
        for (const int n : {2, 3, 4, 8}) {
          if (n > 2 && (cache != ops::CacheType::f16 || as_f32 || planes == 1)) continue;
          CpuShards shards(tiny.plan, options, n, n == 3 ? Kernels::reference : best);
          EXPECT_TRUE(run_all(*shards, true) == expected)
              << shape.d_model << " " << static_cast<int>(cache) << as_f32 << planes << ", " << n << " shards";
        }
      }
    }
  }
}

TEST(ShardExecutor, EveryFormat) {
  base::ThreadPool pool(1);
  const auto best = backend::cpu::best_kernel_set();
  for (const quant::Format& format : quant::all_formats()) {
    const test::TinyPlan tiny(
        {.d_model = 256, .d_ff = 768, .n_layers = 1, .n_heads = 8, .n_kv_heads = 4, .dtype = format.dtype});
    const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
    const Seen expected = run_all(*backend::cpu::make_cpu_executor(tiny.plan, options, {best}, pool), true);
    CpuShards shards(tiny.plan, options, 2, best);
    EXPECT_TRUE(run_all(*shards, true) == expected) << tensor::traits(format.dtype).name;
  }
}

TEST(ShardExecutor, ObservingChangesNoBitAndTheCacheIsDivided) {
  base::ThreadPool pool(1);
  const auto best = backend::cpu::best_kernel_set();
  const test::TinyPlan tiny({.n_layers = 3});
  const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
  CpuShards observed(tiny.plan, options, 2, best), alone(tiny.plan, options, 2, best);
  const Seen expected = run_all(*observed, true);
  Seen unobserved = run_all(*alone, false);
  EXPECT_TRUE(unobserved.values.empty());
  EXPECT_EQ(expected.values.size(), tiny.plan.ops.size());
  unobserved.values = expected.values;
  EXPECT_TRUE(unobserved == expected);
  EXPECT_EQ(alone->cache_bytes(), backend::cpu::make_cpu_executor(tiny.plan, options, {best}, pool)->cache_bytes());
}

TEST(ShardExecutor, ARunThatFailsLeavesEveryShardAsItWas) {
  base::ThreadPool pool(1);
  const auto best = backend::cpu::best_kernel_set();
  const test::TinyPlan tiny({.n_layers = 3});
  const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
  CpuShards shards(tiny.plan, options, 4, best,
                   [](std::unique_ptr<ops::Executor> inner, int i) -> std::unique_ptr<ops::Executor> {
                     if (i != 2) return inner;
                     return std::make_unique<test::Failing>(std::move(inner), 2);
                   });
  const auto whole = backend::cpu::make_cpu_executor(tiny.plan, options, {best}, pool);
  const std::vector<int32_t> first = {1, 2, 3}, second = {4, 5}, at_0 = {0, 1, 2}, at_3 = {3, 4};
  const std::vector<uint8_t> outputs = {0, 0, 1}, last = {0, 1};
  shards->run({first, at_0, {}, outputs});
  try {
    shards->run({second, at_3, {}, last});
    FAIL() << "the third shard's failure was lost";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "as asked");
  }
  EXPECT_EQ(shards->n_positions(0), 3);
  EXPECT_THROW(shards->run({second, at_0, {}, last}), Error);  // positions that are there already: every shard says so
  shards->run({second, at_3, {}, last});
  whole->run({first, at_0, {}, outputs});
  whole->run({second, at_3, {}, last});
  EXPECT_EQ(std::memcmp(shards->logits(0).data(), whole->logits(0).data(), shards->logits(0).size_bytes()), 0);
}

}  // namespace
}  // namespace assay::engine
