// Models whose layers look back over a window: requests have what they have alone, bit by bit, at once, behind a prefix
// hit far from the end of what is kept, in a pool that is too small, after a restart.
#include <gtest/gtest.h>

#include "engine/context_state.h"
#include "support/rounds.h"
#include "support/scheduler_test_base.h"
#include "support/shared_data.h"

namespace assay {
namespace {

// Windows of 8 positions, beside layers that see everything; gpt-oss with sinks.
class WindowScheduler : public test::SchedulerTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    const auto path = test::shared(std::string("goldens/arch/") + GetParam() + ".gguf");
    ASSAY_REQUIRE_FILE(path);
    model_ = Model::load(path.string(), {.tokenizer = false});
    options_.context.n_ctx = 256;
    options_.n_waiting_max = 64;
  }

  Request request(int i) const {
    Request r = varied(i);
    r.prompt = tokens(10 + i * 29 % 120, i % 3);
    r.generate.n_predict = 5 + i * 7 % 30;
    return r;
  }
  void expect_all_as_alone(Scheduler& scheduler, int n) {
    std::map<RequestId, Request> requests;
    for (int i = 0; i < n; ++i) {
      const Request r = request(i);
      requests[*scheduler.submit(r, sink())] = r;
    }
    run(scheduler);
    for (const auto& [id, r] : requests) {
      SCOPED_TRACE(id);
      expect_as_alone(r, outcomes_.at(id));
    }
    outcomes_.clear();
    EXPECT_EQ(scheduler.figures().n_positions_used, 0);
  }
  // As alone; how much of the prompt was held.
  int64_t n_cached(Scheduler& scheduler, const Request& r) {
    outcomes_.clear();
    const RequestId id = *scheduler.submit(r, sink());
    run(scheduler);
    expect_as_alone(r, outcomes_.at(id));
    return outcomes_.at(id).started->n_prompt_cached;
  }
};

TEST_P(WindowScheduler, ThirtyTwoAtOnceEqualEachAlone) {
  for (const bool caches : {true, false}) {
    options_.caches_prompts = caches;
    Scheduler scheduler(model_, options_);
    expect_all_as_alone(scheduler, test::unless_sanitized(32, 8));
    EXPECT_EQ(scheduler.figures().n_prompt_tokens_cached > 0, caches);
    if (!caches) {
      EXPECT_EQ(scheduler.figures().n_pages_free, scheduler.figures().n_pages);
    }
  }
}

// A hit needs the window before it. A sequence keeps that of its end, of its prompt's and of where it parted from
// another.
TEST_P(WindowScheduler, AHitWhoseWindowIsGoneIsReadAgainAndKeptFromThenOn) {
  Scheduler scheduler(model_, options_);
  Request r = request(1);
  r.generate.n_predict = 20;
  r.prompt = tokens(200);
  EXPECT_EQ(n_cached(scheduler, r), 0);
  EXPECT_EQ(n_cached(scheduler, r), 199);
  Request next = r;  // the next turn of a conversation
  next.prompt.insert(next.prompt.end(), outcomes_.begin()->second.ids.begin(), outcomes_.begin()->second.ids.end());
  next.prompt.push_back(7);
  EXPECT_EQ(n_cached(scheduler, next), 219);
  EXPECT_EQ(n_cached(scheduler, r), 199);
  for (const int round : {0, 1, 2}) {
    Request other = r;  // another conversation with the same beginning
    other.prompt = tokens(100);
    for (int i = 0; i < 60; ++i) other.prompt.push_back(150 + 20 * round + i % 3);
    EXPECT_EQ(n_cached(scheduler, other), round == 0 ? 0 : 100) << round;
  }
}

// A long answer: of layers with a window no more than a page before the last one, that one, and the next; and where
// prompts are kept the two pages of this one.
TEST_P(WindowScheduler, MemoryInUseIsBounded) {
  options_.context.n_sequences = 1;
  options_.context.n_ctx = 512;
  Request r = request(1);
  r.prompt = tokens(100);
  r.generate = {};
  r.generate.n_predict = 390;
  int64_t most[2] = {};
  for (const bool caches : {false, true}) {
    options_.caches_prompts = caches;
    Scheduler scheduler(model_, options_);
    scheduler.submit(r, [](RequestId, const RequestEvent&) {});
    while (scheduler.step()) most[caches] = std::max(most[caches], scheduler.figures().cache_bytes_used);
    EXPECT_EQ(scheduler.figures().cache_bytes_used > 0, caches);
  }
  options_.caches_prompts = true;
  Context context(model_, options_.context);
  const ops::CachePages pages = context.state().executor->pages();
  const auto all = static_cast<int64_t>(pages.page_bytes), windows = static_cast<int64_t>(pages.window_bytes);
  ASSERT_GT(windows, 0);
  EXPECT_EQ(most[false], 8 * (all - windows) + 3 * windows);
  EXPECT_EQ(most[true], 8 * (all - windows) + 5 * windows);
}

TEST_P(WindowScheduler, PreemptedRequestsHaveTheirAnswers) {
  options_.context.n_positions_max = 256;  // 4 pages for four requests of up to 3
  for (const int64_t swap : {int64_t{0}, int64_t{1} << 30}) {
    for (const bool caches : {true, false}) {
      options_.swap_bytes_max = swap;
      options_.caches_prompts = caches;
      Scheduler scheduler(model_, options_);
      expect_all_as_alone(scheduler, test::unless_sanitized(16, 6));
      const SchedulerFigures f = scheduler.figures();
      EXPECT_GT(f.n_preempted, 0);
      EXPECT_EQ(f.n_pages, 4);
      if (!caches) {
        EXPECT_EQ(f.n_pages_free, 4);
        EXPECT_EQ(f.cache_bytes_used, 0);
      }
    }
  }
}

TEST_P(WindowScheduler, PromptsOutliveTheScheduler) {
  options_.prompt_folder = (folder_ / "prompts").string();
  Request r = request(2);
  r.prompt = tokens(170, 2);
  {
    Scheduler first(model_, options_);
    EXPECT_EQ(n_cached(first, r), 0);
  }
  Scheduler second(model_, options_);
  EXPECT_EQ(n_cached(second, r), 128);
  EXPECT_EQ(second.figures().n_prompt_tokens_read, 128);
}

INSTANTIATE_TEST_SUITE_P(Families, WindowScheduler,
                         ::testing::Values("gemma2", "gemma3n", "gemma4-e", "gptoss", "cohere2"),
                         [](const auto& parameters) {
                           std::string name = parameters.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace assay
