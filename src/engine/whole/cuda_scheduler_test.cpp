// Requests on a GPU that share pages, are short of them, give way and come back have what each has alone on the CPU,
// token by token and bit by bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include "support/engine/on_gpu.h"
#include "support/engine/random_schedule.h"
#include "support/engine/scheduler_test_base.h"

namespace assay {
namespace {

class CudaScheduler : public test::OnGpu<test::SchedulerTest> {
 protected:
  // A request of many tokens: growing answers is what pages run short by.
  Request long_one(int i) const {
    Request r = varied(i);
    r.prompt = tokens(20 + i * 13 % 90, i % 3);
    r.generate.n_predict = 40 + i * 11 % 70;
    return r;
  }
};

TEST_F(CudaScheduler, ThirtyTwoAtOnceEqualEachAloneOnTheCpu) {
  options_.n_waiting_max = 32;
  for (const bool caches : {true, false}) {
    options_.caches_prompts = caches;
    Scheduler scheduler(model_, options_);
    expect_all_as_alone(scheduler, 32, [&](int i) { return varied(i); });
    const SchedulerFigures f = scheduler.figures();
    EXPECT_EQ(f.n_length + f.n_stop, 32);
    EXPECT_EQ(f.n_prompt_tokens_cached > 0, caches);  // several begin alike
    if (!caches) {
      EXPECT_EQ(f.n_pages_free, f.n_pages);
    }
  }
}

TEST_F(CudaScheduler, PreemptedRequestsHaveTheirAnswers) {
  options_.context.n_ctx = 256;
  options_.n_waiting_max = 1000;
  options_.context.n_positions_max = 320;  // 5 pages for four requests of up to 4
  for (const int64_t swap : {int64_t{0}, int64_t{1} << 30}) {
    for (const DraftKind drafts : {DraftKind::none, DraftKind::ngram}) {
      options_.swap_bytes_max = swap;
      options_.drafts.kind = drafts;
      Scheduler scheduler(model_, options_);
      expect_all_as_alone(scheduler, 16, [&](int i) { return long_one(i); });
      const SchedulerFigures f = scheduler.figures();
      EXPECT_GT(f.n_preempted, 0);
      EXPECT_EQ(f.n_swapped > 0, swap > 0);
      EXPECT_EQ(f.n_pages, 5);
    }
  }
}

// The best logits leave the device where tokens are forbidden too; those of a draw whose best is forbidden all do.
TEST_F(CudaScheduler, ForbiddenTokensLeaveTheOthersAsTheyAre) {
  options_.n_waiting_max = 32;
  Scheduler scheduler(model_, options_);
  expect_all_as_alone(scheduler, 12, [&](int i) {
    Request r = varied(i);
    r.generate.n_top_logprobs = -1;  // which want all logits
    for (TokenId id = i % 4; id < static_cast<TokenId>(model_->vocab_size()); id += 4) {
      r.generate.sampling.logit_bias.push_back({id, -std::numeric_limits<float>::infinity()});
    }
    return r;
  });
}

// Layers on the GPU and on the CPU, which take, share and free the same pages.
TEST_F(CudaScheduler, PreemptedRequestsOfASplitModelHaveTheirAnswers) {
  options_.context.n_ctx = 256;
  options_.context.n_gpu_layers = 1;
  options_.n_waiting_max = 1000;
  options_.context.n_positions_max = 320;
  options_.swap_bytes_max = 1 << 30;
  Scheduler scheduler(model_, options_);
  expect_all_as_alone(scheduler, 12, [&](int i) { return long_one(i); });
  EXPECT_GT(scheduler.figures().n_swapped, 0);
}

TEST_F(CudaScheduler, ChoicesOfOnePromptReadItOnce) {
  options_.context.n_ctx = 256;
  Scheduler scheduler(model_, options_);
  std::vector<RequestId> ids;
  Request r = varied(1);
  r.prompt = tokens(150);
  for (uint64_t i = 0; i < 4; ++i) {
    r.generate.request = i;
    ids.push_back(*scheduler.submit(r, sink()));
  }
  run(scheduler);
  EXPECT_EQ(scheduler.figures().n_prompt_tokens_cached, 3 * 149);
  for (uint64_t i = 0; i < 4; ++i) {
    r.generate.request = i;
    EXPECT_EQ(outcomes_[ids[i]].started->n_prompt_cached, i == 0 ? 0 : 149);
    expect_as_alone(r, outcomes_[ids[i]]);
  }
}

TEST_F(CudaScheduler, APrefixCountsToTheTokenAndOutlivesTheProgram) {
  options_.context.n_ctx = 256;
  options_.prompt_folder = (folder_ / "saved").string();
  Request r = varied(1);
  r.prompt = tokens(200);
  r.generate.n_predict = 1;
  {
    Scheduler scheduler(model_, options_);
    scheduler.submit(r, sink());
    run(scheduler);
    for (const int n_same : {1, 63, 64, 65, 150, 199}) {
      Request other = r;
      other.prompt[static_cast<size_t>(n_same)] = (r.prompt[static_cast<size_t>(n_same)] + 1) % 96;
      other.prompt.resize(static_cast<size_t>(n_same) + 1);
      other.prompt.push_back(3);
      const RequestId id = *scheduler.submit(other, sink());
      run(scheduler);
      EXPECT_EQ(outcomes_[id].finished->n_prompt_cached, n_same);
      expect_as_alone(other, outcomes_[id]);
    }
  }
  const auto n_cached = [&](Backend backend) {
    options_.context.backend = backend;
    Scheduler scheduler(model_, options_);
    outcomes_.clear();
    const RequestId id = *scheduler.submit(r, sink());
    run(scheduler);
    expect_as_alone(r, outcomes_[id]);
    return outcomes_[id].finished->n_prompt_cached;
  };
  EXPECT_EQ(n_cached(Backend::cpu), 0);  // its pages lie in another order
  EXPECT_EQ(n_cached(Backend::cuda), 192);
}

class CudaRandomSchedule : public test::OnGpu<test::RandomSchedule> {};

TEST_F(CudaRandomSchedule, EndsWithEveryAnswerAndNoPage) {
  for (uint64_t seed = 1; seed <= 4; ++seed) walk(250, seed);
}

}  // namespace
}  // namespace assay
