// Sequences of models with a state, cut anywhere and run on: the bits of a sequence that never was longer, on one
// executor and on two parts, whatever the distance of checkpoints; and the same through a context, in two sequences by
// turns, and after a run that failed.
#include "engine/executors/replay_executor.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "assay/context.h"
#include "assay/error.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/oracle/oracle_executor.h"
#include "engine/executors/split_executor.h"
#include "engine/model_state.h"
#include "support/engine/executor_runs.h"
#include "support/goldens.h"
#include "support/shared_data.h"

namespace assay::engine {
namespace {

constexpr const char* kStateModels[] = {"qwen35", "lfm2", "falconh1", "mamba", "kimilinear"};

std::string state_file(const std::string& name, const char* ending) {
  return test::shared("goldens/arch/" + name + ending).string();
}

struct CutLeft {
  std::vector<double> logits;
  std::vector<std::byte> cache;
  friend bool operator==(const CutLeft&, const CutLeft&) = default;
};

void run_tokens(ops::Executor& executor, std::span<const int32_t> ids, int64_t begin, int64_t end) {
  std::vector<int32_t> positions(static_cast<size_t>(end - begin));
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(begin));
  std::vector<uint8_t> outputs(positions.size(), 0);
  outputs.back() = 1;
  executor.run({ids.subspan(static_cast<size_t>(begin), positions.size()), positions, {}, outputs});
}

CutLeft left_by(const ops::Executor& executor, int64_t vocab_size) {
  CutLeft left;
  left.logits.resize(static_cast<size_t>(vocab_size));
  executor.read_logits(0, left.logits);
  executor.visit_cache(
      0, [&](std::span<const std::byte> bytes) { left.cache.insert(left.cache.end(), bytes.begin(), bytes.end()); });
  return left;
}

class Replay : public ::testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const Model> model = Model::load(state_file(GetParam(), ".gguf"), {.tokenizer = false});
  const ops::Plan& plan = model->state().built.plan;
  std::vector<int32_t> ids = test::read_tiny_golden(state_file(GetParam(), ".json")).ids;
  base::ThreadPool pool{2};

  ops::ExecutorOptions options(int64_t interval) const {
    ops::ExecutorOptions o;
    o.n_ctx = 64, o.n_batch_max = 16, o.n_outputs_max = 1, o.n_sequences = 2, o.checkpoint_interval = interval;
    return o;
  }
  std::unique_ptr<ops::Executor> cpu(const ops::Plan& of, const ops::ExecutorOptions& o) {
    return backend::cpu::make_cpu_executor(of, o, {}, pool);
  }

  // 33 tokens, cut to each of these lengths in turn, other tokens run on, cut again, and the right ones run to 40.
  CutLeft cut_and_run(ops::Executor& executor) {
    const std::vector<int32_t> other(ids.rbegin(), ids.rend());
    for (int64_t begin = 0; begin < 33; begin += 11) run_tokens(executor, ids, begin, begin + 11);
    for (const int64_t n : {32, 29, 17, 8, 5}) {
      executor.truncate(0, n);
      EXPECT_EQ(executor.n_positions(0), n);
      run_tokens(executor, other, n, n + 7);
      executor.truncate(0, n);
      EXPECT_EQ(executor.n_positions(0), n);
      run_tokens(executor, ids, n, n + 3);
    }
    for (int64_t begin = 8; begin < 40; begin += 16) run_tokens(executor, ids, begin, begin + 16);
    return left_by(executor, plan.vocab_size);
  }
};

TEST_P(Replay, CutAnywhereAndRunOnHasTheBitsOfOneRun) {
  const auto whole = cpu(plan, options(256));
  for (int64_t begin = 0; begin < 40; begin += 8) run_tokens(*whole, ids, begin, begin + 8);
  const CutLeft expected = left_by(*whole, plan.vocab_size);
  for (const int64_t interval : {1, 4, 7, 256}) {
    const auto executor = with_replay(cpu(plan, options(interval)), plan, options(interval));
    EXPECT_TRUE(cut_and_run(*executor) == expected) << "checkpoints every " << interval;
  }
  const auto make = [&](const ops::Plan& part, int) { return cpu(part, options(4)); };
  const auto split =
      with_replay(make_split_executor(plan, options(4), std::vector<int32_t>{1}, make), plan, options(4));
  EXPECT_TRUE(cut_and_run(*split) == expected) << "two parts";
}

TEST_P(Replay, TheOracleIsCutToo) {
  const auto whole = backend::oracle::make_oracle_executor(plan, options(256), pool);
  for (int64_t begin = 0; begin < 40; begin += 8) run_tokens(*whole, ids, begin, begin + 8);
  const auto executor = with_replay(backend::oracle::make_oracle_executor(plan, options(4), pool), plan, options(4));
  EXPECT_TRUE(cut_and_run(*executor) == left_by(*whole, plan.vocab_size));
}

TEST_P(Replay, ARunThatFailsLeavesTheSequenceAsItWas) {
  const auto make = [&](const ops::Plan& part, int i) -> std::unique_ptr<ops::Executor> {
    if (i == 0) return cpu(part, options(4));
    return std::make_unique<test::Failing>(cpu(part, options(4)), 2);
  };
  const auto split =
      with_replay(make_split_executor(plan, options(4), std::vector<int32_t>{1}, make), plan, options(4));
  run_tokens(*split, ids, 0, 10);
  EXPECT_THROW(run_tokens(*split, ids, 10, 15), Error);
  EXPECT_EQ(split->n_positions(0), 10);
  run_tokens(*split, ids, 10, 15);
  const auto whole = cpu(plan, options(256));
  run_tokens(*whole, ids, 0, 15);
  EXPECT_TRUE(left_by(*split, plan.vocab_size) == left_by(*whole, plan.vocab_size));
}

TEST_P(Replay, SequencesByTurnsHaveTheirOwnStates) {
  ContextOptions two;
  two.n_ctx = 64, two.n_sequences = 2, two.n_ubatch = 10, two.n_outputs_max = 10;
  Context together(model, two), alone(model, two);
  const std::vector<int32_t> other(ids.rbegin(), ids.rend());
  for (size_t i = 0; i < 40; i += 5) {
    std::vector<BatchToken> batch;
    for (size_t j = i; j < i + 5; ++j) batch.push_back({ids[j], 0, true}), batch.push_back({other[j], 1, true});
    together.decode_batch(batch);
  }
  alone.decode(other, 1);
  EXPECT_EQ(together.kv_digest(1), alone.kv_digest(1));
  alone.decode(ids, 0);
  EXPECT_EQ(together.kv_digest(0), alone.kv_digest(0));
  together.clear();
  together.decode(ids, 0);
  EXPECT_EQ(together.kv_digest(0), alone.kv_digest(0));
}

INSTANTIATE_TEST_SUITE_P(Models, Replay, ::testing::ValuesIn(kStateModels),
                         [](const auto& parameters) { return std::string(parameters.param); });

}  // namespace
}  // namespace assay::engine
