// Models with states on a GPU: requests that share pages and states, are short of pages, give way and come back have
// what each has alone on the CPU, token by token and bit by bit.
#include <gtest/gtest.h>

#include "support/engine/on_gpu.h"
#include "support/engine/random_schedule.h"
#include "support/engine/scheduler_test_base.h"
#include "support/shared_data.h"

namespace assay {
namespace {

class CudaStateScheduler : public test::OnGpu<test::SchedulerTest>, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    const auto path = test::shared(std::string("goldens/arch/") + GetParam() + ".gguf");
    ASSAY_REQUIRE_FILE(path);
    model_ = Model::load(path.string(), {.tokenizer = false});
    options_.context.n_ctx = 640;
    options_.n_waiting_max = 64;
  }

  Request request(int i) const {
    Request r = varied(i);
    r.prompt = tokens(10 + i * 83 % 400, i % 3);
    r.generate.n_predict = 5 + i * 7 % 20;
    return r;
  }
};

TEST_P(CudaStateScheduler, ManyAtOnceEqualEachAloneOnTheCpu) {
  for (const bool caches : {true, false}) {
    options_.caches_prompts = caches;
    Scheduler scheduler(model_, options_);
    expect_all_as_alone(scheduler, 16, [this](int i) { return request(i); });
    EXPECT_EQ(scheduler.figures().n_prompt_tokens_cached > 0, caches);
    if (!caches) {
      EXPECT_EQ(scheduler.figures().n_pages_free, scheduler.figures().n_pages);
    }
  }
}

TEST_P(CudaStateScheduler, APoolFullOfWhatIsOverServesOn) {
  options_.context.n_sequences = 2;
  options_.context.n_positions_max = 640;
  Scheduler scheduler(model_, options_);
  for (int i = 0; i < 12; ++i) {
    Request r = request(i);
    r.prompt = tokens(150, 7 * i);
    EXPECT_EQ(n_cached(scheduler, r), 0) << i;
  }
}

// A greedy answer runs ahead: what a hit takes of it must be the state before the run that nobody asked for.
TEST_P(CudaStateScheduler, AHitEndsWhereTheStatesAreKnown) {
  for (const double temperature : {1.5, 0.0}) {
    Scheduler scheduler(model_, options_);
    Request r = request(1);
    r.generate.sampling.temperature = temperature;
    r.generate.n_predict = 20;
    r.prompt = tokens(400);
    EXPECT_EQ(n_cached(scheduler, r), 0);
    const auto turn_after = [this](Request before) {
      const std::vector<TokenId>& answer = outcomes_.begin()->second.ids;
      before.prompt.insert(before.prompt.end(), answer.begin(), answer.end());
      before.prompt.push_back(7);
      return before;
    };
    const Request next = turn_after(r);
    EXPECT_EQ(n_cached(scheduler, next), 419);
    const Request third = turn_after(next);
    EXPECT_EQ(n_cached(scheduler, r), 256);
    for (const int round : {0, 1}) {
      Request other = r;
      other.prompt = tokens(300);
      for (int i = 0; i < 60; ++i) other.prompt.push_back(50 + 20 * round + i % 3);
      EXPECT_EQ(n_cached(scheduler, other), 256) << round;
    }
    EXPECT_EQ(n_cached(scheduler, third), 440);
  }
}

TEST_P(CudaStateScheduler, ChoicesAreForksOfOneReading) {
  Scheduler scheduler(model_, options_);
  std::map<RequestId, Request> requests;
  for (uint64_t i = 0; i < 4; ++i) {
    Request r = request(1);
    r.prompt = tokens(300);
    if (i == 3) r.prompt.resize(200);
    r.generate.request = i;
    requests[*scheduler.submit(r, sink())] = r;
  }
  run(scheduler);
  int64_t n_cached = 0;
  for (const auto& [id, r] : requests) {
    expect_as_alone(r, outcomes_.at(id));
    n_cached += outcomes_.at(id).started->n_prompt_cached;
  }
  EXPECT_EQ(n_cached, 299 + 299 + 199);
}

// In a pool of 6 pages, with layers on the CPU as well, with guesses.
TEST_P(CudaStateScheduler, PreemptedRequestsHaveTheirAnswers) {
  options_.context.n_ctx = 384;
  options_.context.n_positions_max = 384;
  for (const int round : {0, 1, 2}) {
    options_.caches_prompts = round != 1;
    options_.context.n_gpu_layers = round == 1 ? 1 : -1;
    options_.drafts.kind = round == 2 ? DraftKind::ngram : DraftKind::none;
    Scheduler scheduler(model_, options_);
    expect_all_as_alone(scheduler, 5, [this](int i) {
      Request r = request(i);
      r.prompt = tokens(100 + 5 * i, i);
      r.generate.n_predict = 200;
      return r;
    });
    const SchedulerFigures f = scheduler.figures();
    EXPECT_GT(f.n_preempted, 0);
    EXPECT_EQ(f.n_pages, 6);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaStateScheduler, ::testing::Values("qwen35", "lfm2", "falconh1", "mamba"),
                         [](const auto& each) { return std::string(each.param); });

class CudaStateSchedule : public test::OnGpu<test::RandomSchedule> {};

TEST_F(CudaStateSchedule, EndsWithEveryAnswerAndNoPage) {
  const auto path = test::shared("goldens/arch/qwen35.gguf");
  ASSAY_REQUIRE_FILE(path);
  model_ = Model::load(path.string(), {.tokenizer = false});
  has_images_ = false;
  for (uint64_t seed = 1; seed <= 4; ++seed) walk(250, seed);
}

}  // namespace
}  // namespace assay
