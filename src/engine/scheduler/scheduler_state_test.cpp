// Models with states, which can be cut at checkpoints alone: requests have what they have alone, bit by bit, at once,
// behind hits, in a pool that is too small; and a pool that is full of what is over serves on.
#include <gtest/gtest.h>

#include "engine/context_state.h"
#include "support/engine/scheduler_test_base.h"
#include "support/rounds.h"
#include "support/shared_data.h"

namespace assay {
namespace {

class StateScheduler : public test::SchedulerTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
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
  void expect_all_as_alone(Scheduler& scheduler, int n) {
    SchedulerTest::expect_all_as_alone(scheduler, n, [this](int i) { return request(i); });
  }
};

TEST_P(StateScheduler, ManyAtOnceEqualEachAlone) {
  for (const bool caches : {true, false}) {
    options_.caches_prompts = caches;
    Scheduler scheduler(model_, options_);
    expect_all_as_alone(scheduler, test::unless_sanitized(16, 6));
    EXPECT_EQ(scheduler.figures().n_prompt_tokens_cached > 0, caches);
    if (!caches) {
      EXPECT_EQ(scheduler.figures().n_pages_free, scheduler.figures().n_pages);
    }
  }
}

// What is kept gives its pages to whoever needs them, however many requests there were.
TEST_P(StateScheduler, APoolFullOfWhatIsOverServesOn) {
  options_.context.n_sequences = 2;
  options_.context.n_positions_max = 640;
  Scheduler scheduler(model_, options_);
  for (int i = 0; i < 12; ++i) {
    Request r = request(i);
    r.prompt = tokens(150, 7 * i);
    EXPECT_EQ(n_cached(scheduler, r), 0) << i;
  }
}

TEST_P(StateScheduler, AHitEndsWhereTheStatesAreKnown) {
  Scheduler scheduler(model_, options_);
  Request r = request(1);
  r.generate.n_predict = 20;
  r.prompt = tokens(400);
  EXPECT_EQ(n_cached(scheduler, r), 0);
  const auto turn_after = [this](Request before) {
    const std::vector<TokenId>& answer = outcomes_.begin()->second.ids;
    before.prompt.insert(before.prompt.end(), answer.begin(), answer.end());
    before.prompt.push_back(7);
    return before;
  };
  const Request next = turn_after(r);  // the next turn of a conversation goes on at the end
  EXPECT_EQ(n_cached(scheduler, next), 419);
  const Request third = turn_after(next);
  EXPECT_EQ(n_cached(scheduler, r), 256);
  for (const int round : {0, 1}) {  // other conversations with the same beginning, side by side
    Request other = r;
    other.prompt = tokens(300);
    for (int i = 0; i < 60; ++i) other.prompt.push_back(50 + 20 * round + i % 3);
    EXPECT_EQ(n_cached(scheduler, other), 256) << round;
  }
  EXPECT_EQ(n_cached(scheduler, third), 440);  // the first conversation is still there
}

// Choices of one prompt: one reads it, the others take its states where they part from it.
TEST_P(StateScheduler, ChoicesAreForksOfOneReading) {
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

TEST_P(StateScheduler, PreemptedRequestsHaveTheirAnswers) {
  options_.context.n_ctx = 384;
  options_.context.n_positions_max = 384;  // 6 pages for three requests of up to 5
  for (const bool caches : {true, false}) {
    options_.caches_prompts = caches;
    Scheduler scheduler(model_, options_);
    SchedulerTest::expect_all_as_alone(scheduler, 5, [this](int i) {
      Request r = request(i);
      r.prompt = tokens(100 + 5 * i, i);
      r.generate.n_predict = 200;
      return r;
    });
    const SchedulerFigures f = scheduler.figures();
    EXPECT_GT(f.n_preempted, 0);
    EXPECT_EQ(f.n_swapped, 0);
    EXPECT_EQ(f.n_pages, 6);
  }
}

// Guesses that are wrong are cut off while others have still to draw from the same run.
TEST_P(StateScheduler, GuessesChangeNoAnswer) {
  options_.drafts = {DraftKind::model, 3, model_};
  Scheduler scheduler(model_, options_);
  expect_all_as_alone(scheduler, test::unless_sanitized(12, 6));
  EXPECT_GT(scheduler.figures().n_drafted, scheduler.figures().n_accepted);
}

// One place: who begins alike takes it over.
TEST_P(StateScheduler, OnePlaceIsTakenOver) {
  options_.context.n_sequences = 1;
  Scheduler scheduler(model_, options_);
  Request r = request(1);
  r.prompt = tokens(300);
  EXPECT_EQ(n_cached(scheduler, r), 0);
  r.prompt.resize(280);
  EXPECT_EQ(n_cached(scheduler, r), 256);
  r.prompt = tokens(200, 3);
  EXPECT_EQ(n_cached(scheduler, r), 0);
}

TEST_P(StateScheduler, ImagesOfPagesAreRefusedByName) {
  const auto why = [this](const char* needs) {
    try {
      Scheduler scheduler(model_, options_);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("of a model with states"), std::string::npos) << needs;
      EXPECT_NE(std::string(error.what()).find(needs), std::string::npos) << error.what();
      return true;
    }
    return false;
  };
  options_.swap_bytes_max = 1 << 20;
  EXPECT_TRUE(why("--swap-space"));
  options_.swap_bytes_max = -1;
  EXPECT_FALSE(why(""));
  options_.prompt_folder = (folder_ / "prompts").string();
  EXPECT_TRUE(why("--prompt-cache-dir"));
}

INSTANTIATE_TEST_SUITE_P(Models, StateScheduler, ::testing::Values("qwen35", "lfm2", "falconh1", "mamba"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace assay
