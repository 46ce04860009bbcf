// A plan on two or three executors has the bits of the plan on one: logits, cache and what an observer sees, in every
// setting, with the parts on kernel sets of their own.
#include "engine/executors/split_executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "assay/error.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "support/engine/executor_runs.h"
#include "support/tiny_plan.h"

namespace assay::engine {
namespace {

using test::options_of, test::run_all, test::Seen;

TEST(SplitExecutor, EverySplitHasTheBitsOfOneExecutor) {
  base::ThreadPool pool(1);
  const auto best = backend::cpu::best_kernel_set();
  for (const bool gemma : {false, true}) {
    const test::TinyPlan tiny(
        {.n_layers = 4, .window = 9, .dtype = gemma ? tensor::DType::Q8_0 : tensor::DType::Q4_1, .gemma = gemma});
    for (const ops::CacheType cache : {ops::CacheType::f16, ops::CacheType::q8_0, ops::CacheType::f32}) {
      for (const auto& [as_f32, planes] : {std::pair(false, 2), std::pair(false, 1), std::pair(true, 2)}) {
        const ops::ExecutorOptions options = options_of(cache, as_f32, planes);
        const auto whole = backend::cpu::make_cpu_executor(tiny.plan, options, {best}, pool);
        const Seen expected = run_all(*whole, true);
        for (const std::vector<int32_t>& borders : {std::vector<int32_t>{1}, {3}, {1, 2, 3}}) {
          const auto make = [&](const ops::Plan& part, int i) {
            return backend::cpu::make_cpu_executor(part, options, {i % 2 == 0 ? Kernels::reference : best}, pool);
          };
          const auto split = make_split_executor(tiny.plan, options, borders, make);
          EXPECT_TRUE(run_all(*split, true) == expected)
              << gemma << " " << static_cast<int>(cache) << as_f32 << planes << ", " << borders.size() + 1 << " parts";
          EXPECT_EQ(split->cache_bytes(), whole->cache_bytes());
        }
      }
    }
  }
}

TEST(SplitExecutor, ObservingChangesNoBit) {
  base::ThreadPool pool(1);
  const test::TinyPlan tiny({.n_layers = 3});
  const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
  const auto make = [&](const ops::Plan& part, int) {
    return backend::cpu::make_cpu_executor(part, options, {}, pool);
  };
  const Seen expected = run_all(*make_split_executor(tiny.plan, options, std::vector<int32_t>{2}, make), true);
  Seen unobserved = run_all(*make_split_executor(tiny.plan, options, std::vector<int32_t>{2}, make), false);
  EXPECT_TRUE(unobserved.values.empty());
  unobserved.values = expected.values;
  EXPECT_TRUE(unobserved == expected);
}

// Parts with layers that have a window and one without: what one of them gave back no part goes on from.
TEST(SplitExecutor, PartsGiveBackWhatLiesBehindTheirWindows) {
  base::ThreadPool pool(1);
  const test::TinyPlan tiny({.n_layers = 4, .window = 40});  // of layers 0 and 2
  ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
  options.n_ctx = options.n_batch_max = 300;
  options.n_sequences = 2;
  const auto make = [&](const ops::Plan& part, int) {
    return backend::cpu::make_cpu_executor(part, options, {}, pool);
  };
  const auto whole = backend::cpu::make_cpu_executor(tiny.plan, options, {}, pool);
  const auto split = make_split_executor(tiny.plan, options, std::vector<int32_t>{1, 2}, make);
  std::vector<int32_t> ids, positions;
  for (int i = 0; i < 250; ++i) ids.push_back(i * 7 % 64), positions.push_back(i);
  const auto run = [&](ops::Executor& executor, size_t begin, size_t end, int sequence) {
    const std::vector<int32_t> sequences(end - begin, sequence);
    std::vector<uint8_t> outputs(end - begin);
    outputs.back() = 1;
    executor.run({std::span(ids).subspan(begin, end - begin), std::span(positions).subspan(begin, end - begin),
                  sequences, outputs});
    const std::span<const float> logits = executor.logits(0);
    return std::vector<float>(logits.begin(), logits.end());
  };
  run(*split, 0, 240, 0);
  const ops::CachePages pages = split->pages();
  EXPECT_EQ(pages.window_bytes, pages.page_bytes / 2);
  EXPECT_EQ(pages.used_bytes, 4 * pages.page_bytes);
  split->forget(0, 0, 240);
  EXPECT_EQ(split->pages().used_bytes, 4 * pages.page_bytes - 3 * pages.window_bytes);
  EXPECT_EQ(split->n_usable(0, 235), 235);
  EXPECT_EQ(split->n_usable(0, 200), 0);
  EXPECT_FALSE(split->fork(0, 200, 1));
  for (int64_t i = 0; i < 4; ++i) {  // to another sequence by images
    std::vector<std::byte> image(pages.page_bytes - (i < 3 ? pages.window_bytes : 0));
    EXPECT_EQ(split->holds_window(0, i), i == 3);
    ASSERT_TRUE(split->read_page(0, i, image));
    ASSERT_TRUE(split->append_page(1, i < 3 ? 64 : 48, image));
  }
  const std::vector<float> expected = run(*whole, 0, 250, 0);
  EXPECT_EQ(run(*split, 240, 250, 0), expected);
  EXPECT_EQ(run(*split, 240, 250, 1), expected);
  split->truncate(0, 200);
  EXPECT_EQ(split->n_positions(0), 0);
  EXPECT_EQ(run(*split, 0, 250, 0), expected);
}

TEST(SplitExecutor, ARunThatFailsLeavesEveryPartAsItWas) {
  base::ThreadPool pool(1);
  const test::TinyPlan tiny({.n_layers = 3});
  const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
  const auto make = [&](const ops::Plan& part, int i) -> std::unique_ptr<ops::Executor> {
    auto executor = backend::cpu::make_cpu_executor(part, options, {}, pool);
    if (i != 1) return executor;
    return std::make_unique<test::Failing>(std::move(executor), 2);
  };
  const auto split = make_split_executor(tiny.plan, options, std::vector<int32_t>{1, 2}, make);
  const auto whole = backend::cpu::make_cpu_executor(tiny.plan, options, {}, pool);
  const std::vector<int32_t> first = {1, 2, 3}, second = {4, 5}, at_0 = {0, 1, 2}, at_3 = {3, 4};
  const std::vector<uint8_t> outputs = {0, 0, 1}, last = {0, 1};
  split->run({first, at_0, {}, outputs});
  EXPECT_THROW(split->run({second, at_3, {}, last}), Error);
  EXPECT_EQ(split->n_positions(0), 3);
  split->run({second, at_3, {}, last});
  whole->run({first, at_0, {}, outputs});
  whole->run({second, at_3, {}, last});
  EXPECT_EQ(std::memcmp(split->logits(0).data(), whole->logits(0).data(), split->logits(0).size_bytes()), 0);
}

// Parts fork, keep and bring back what the whole would.
TEST(SplitExecutor, PagesAreSharedKeptAndBroughtBack) {
  base::ThreadPool pool(1);
  const test::TinyPlan tiny({.n_layers = 3});
  ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
  options.n_ctx = 200, options.n_batch_max = 200, options.n_sequences = 3;
  const auto make = [&](const ops::Plan& part, int) {
    return backend::cpu::make_cpu_executor(part, options, {}, pool);
  };
  const auto split = make_split_executor(tiny.plan, options, std::vector<int32_t>{1, 2}, make);
  const auto whole = backend::cpu::make_cpu_executor(tiny.plan, options, {}, pool);
  EXPECT_EQ(split->pages().page_bytes, whole->pages().page_bytes);
  std::vector<int32_t> tokens, positions;
  for (int32_t i = 0; i < 150; ++i) tokens.push_back(i % 13), positions.push_back(i);
  const auto run = [&](ops::Executor& executor, size_t begin, size_t n, int32_t sequence) {
    std::vector<uint8_t> outputs(n, 0);
    outputs.back() = 1;
    executor.run({std::span(tokens).subspan(begin, n), std::span(positions).subspan(begin, n),
                  std::vector<int32_t>(n, sequence), outputs});
  };
  std::vector<std::vector<float>> logits;
  for (ops::Executor* executor : {split.get(), whole.get()}) {
    run(*executor, 0, 150, 0);
    EXPECT_TRUE(executor->fork(0, 100, 1));
    std::vector<std::vector<std::byte>> kept(2, std::vector<std::byte>(executor->pages().page_bytes));
    for (int64_t i = 0; i < 2; ++i) EXPECT_TRUE(executor->read_page(0, i, kept[static_cast<size_t>(i)]));
    executor->truncate(0, 0);
    EXPECT_TRUE(executor->append_page(2, 64, kept[0]));
    EXPECT_TRUE(executor->append_page(2, 36, kept[1]));
    EXPECT_FALSE(executor->append_page(2, 1, kept[1]));  // behind a page that is not full
    EXPECT_EQ(executor->n_positions(2), 100);
    run(*executor, 100, 20, 1);
    logits.emplace_back(executor->logits(0).begin(), executor->logits(0).end());
    run(*executor, 100, 20, 2);
    logits.emplace_back(executor->logits(0).begin(), executor->logits(0).end());
    EXPECT_EQ(executor->pages().n_pages - executor->pages().n_free, 4);
  }
  for (const std::vector<float>& other : logits) EXPECT_EQ(other, logits.front());
}

}  // namespace
}  // namespace assay::engine
