// Requests beside others have what they have alone, token by token and bit by bit; cancelling, limits, fairness of
// prompts.
#include "assay/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "support/engine/scheduler_test_base.h"
#include "support/random_numbers.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

using test::SchedulerTest;

TEST_F(SchedulerTest, ThirtyTwoAtOnceEqualEachAlone) {
  options_.n_waiting_max = 32;
  for (const bool caches : {true, false}) {
    options_.caches_prompts = caches;
    outcomes_.clear();
    Scheduler scheduler(model_, options_);
    std::map<RequestId, Request> requests;
    for (int i = 0; i < 32; ++i) {
      const Request r = varied(i);
      requests[*scheduler.submit(r, sink())] = r;
    }
    EXPECT_EQ(scheduler.figures().n_waiting, 32);
    run(scheduler);
    for (const auto& [id, request] : requests) {
      SCOPED_TRACE(id);
      expect_as_alone(request, outcomes_.at(id));
    }
    const SchedulerFigures f = scheduler.figures();
    EXPECT_EQ(f.n_running + f.n_waiting, 0);
    EXPECT_EQ(f.n_positions_used, 0);
    EXPECT_EQ(f.n_length + f.n_stop, 32);
    EXPECT_EQ(f.n_prompt_tokens_cached > 0, caches);  // several begin alike
  }
}

// Threads, places, chunks, how short a step is kept and whether prompts are kept: nothing of it is in an answer.
TEST_F(SchedulerTest, HowItIsRunDoesNotMatter) {
  struct Way {
    int n_threads, n_sequences;
    int64_t n_ubatch;
    double gap_ms_max;
  };
  for (const Way& way : {Way{2, 3, 7, 250}, Way{3, 8, 64, 0.001}, Way{1, 1, 1, 250}, Way{2, 16, 128, 1e9}}) {
    SCOPED_TRACE(way.n_ubatch);
    SchedulerOptions options = options_;
    options.n_waiting_max = 16;
    options.context.n_threads = way.n_threads;
    options.context.n_sequences = way.n_sequences;
    options.context.n_ubatch = way.n_ubatch;
    options.gap_ms_max = way.gap_ms_max;
    outcomes_.clear();
    Scheduler scheduler(model_, options);
    std::map<RequestId, Request> requests;
    for (int i = 0; i < 16; ++i) requests[*scheduler.submit(varied(i), sink())] = varied(i);
    run(scheduler);
    for (const auto& [id, request] : requests) {
      SCOPED_TRACE(id);
      expect_as_alone(request, outcomes_.at(id));
    }
  }
}

TEST_F(SchedulerTest, APromptThatBeginsAlikeRunsItsRestOnly) {
  Scheduler scheduler(model_, options_);
  Request r = varied(1);
  r.prompt = tokens(50);
  const RequestId first = *scheduler.submit(r, sink());
  run(scheduler);
  Request again = r;
  again.prompt.insert(again.prompt.end(), outcomes_[first].ids.begin(), outcomes_[first].ids.end());
  again.prompt.push_back(5);
  const RequestId second = *scheduler.submit(again, sink());
  run(scheduler);
  EXPECT_EQ(outcomes_[first].finished->n_prompt_cached, 0);
  EXPECT_EQ(outcomes_[second].finished->n_prompt_cached, 50 + static_cast<int64_t>(outcomes_[first].ids.size()) - 1);
  expect_as_alone(again, outcomes_[second]);
  const RequestId same = *scheduler.submit(again, sink());
  Request other = again;
  other.salt = "another key";
  const RequestId salted = *scheduler.submit(other, sink());
  run(scheduler);
  EXPECT_EQ(outcomes_[same].finished->n_prompt_cached,
            static_cast<int64_t>(again.prompt.size()) - 1);  // its last token is run
  EXPECT_EQ(outcomes_[salted].finished->n_prompt_cached, 0);
  EXPECT_EQ(outcomes_[same].ids, outcomes_[second].ids);
  EXPECT_EQ(outcomes_[salted].ids, outcomes_[second].ids);
}

TEST_F(SchedulerTest, RefusesAtTheDoorWhatCanNeverRun) {
  Scheduler scheduler(model_, options_);
  EXPECT_THAT(refusal(scheduler, {}), HasSubstr("prompt is empty"));
  Request r = varied(1);
  r.prompt = tokens(129);
  EXPECT_THAT(refusal(scheduler, r), HasSubstr("129 tokens, the context holds 128"));
  r.prompt = {1, 96};
  EXPECT_THAT(refusal(scheduler, r), HasSubstr("token 1 of the prompt: needs an id from 0 to 95, found 96"));
  r.prompt = {-1};
  EXPECT_THAT(refusal(scheduler, r), HasSubstr("found -1"));
  r = varied(1);
  r.generate.sampling.top_p = -1;
  EXPECT_THAT(refusal(scheduler, r), HasSubstr("top-p"));
  r = varied(1);
  r.generate.stop = {""};
  EXPECT_THAT(refusal(scheduler, r), HasSubstr("stop string is empty"));
  EXPECT_FALSE(scheduler.step());
  options_.context.n_ubatch = 2;
  EXPECT_THROW(Scheduler(model_, options_), Error);
}

TEST_F(SchedulerTest, AFullQueueRefusesAtOnce) {
  options_.n_waiting_max = 3;
  Scheduler scheduler(model_, options_);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(refusal(scheduler, varied(i)), "no error");  // 4 can run, 3 wait
  EXPECT_EQ(refusal(scheduler, varied(8)), "full");
  scheduler.step();
  EXPECT_EQ(refusal(scheduler, varied(8)), "full");
  run(scheduler);
  EXPECT_EQ(refusal(scheduler, varied(8)), "no error");
  EXPECT_EQ(scheduler.figures().n_refused, 2);
}

TEST_F(SchedulerTest, ABadDrawFailsItsRequestAlone) {
  Scheduler scheduler(model_, options_);
  Request bad = varied(3);
  static constexpr uint64_t kNone[2] = {0, 0};
  bad.generate.mask = [](std::span<const TokenId> answer) {
    return std::span<const uint64_t>(answer.size() < 2 ? std::span(kEven).first(2) : std::span(kNone).first(2));
  };
  const RequestId failing = *scheduler.submit(bad, sink());
  Request deaf = varied(4);
  const RequestId thrown =
      *scheduler.submit(deaf, [&](RequestId, const RequestEvent&) { throw std::runtime_error("gone"); });
  const Request good = varied(5);
  const RequestId fine = *scheduler.submit(good, sink());
  run(scheduler);
  EXPECT_THAT(outcomes_[failing].failure, HasSubstr("token 2 of the answer: the constraint leaves no token"));
  EXPECT_EQ(outcomes_[failing].ids.size(), 2u);
  expect_as_alone(good, outcomes_[fine]);
  EXPECT_FALSE(scheduler.cancel(thrown));
  EXPECT_EQ(scheduler.figures().n_cancelled, 1);
  EXPECT_EQ(scheduler.figures().n_failed, 1);
}

// First tokens of a step are drawn beside one another, by the pool's threads: one that fails is that request's failure.
TEST_F(SchedulerTest, ADrawThatFailsBesideOthersIsItsOwn) {
  options_.context.n_threads = 3;
  Scheduler scheduler(model_, options_);
  Request bad = varied(0);
  bad.generate.mask = {};
  bad.generate.n_top_logprobs = -1;
  bad.generate.sampling.logit_bias.clear();
  for (TokenId id = 0; id < 96; ++id)
    bad.generate.sampling.logit_bias.push_back({id, -std::numeric_limits<float>::infinity()});
  std::map<RequestId, Request> good;
  for (int i = 1; i < 3; ++i) good[*scheduler.submit(varied(i), sink())] = varied(i);
  const RequestId failing = *scheduler.submit(bad, sink());
  good[*scheduler.submit(varied(5), sink())] = varied(5);
  run(scheduler);
  EXPECT_THAT(outcomes_[failing].failure, HasSubstr("the logit bias forbids all of them"));
  EXPECT_TRUE(outcomes_[failing].ids.empty());
  for (const auto& [id, request] : good) expect_as_alone(request, outcomes_[id]);
  EXPECT_EQ(scheduler.figures().n_failed, 1);
}

TEST_F(SchedulerTest, CancelAndDeadlineTakeOneStep) {
  Scheduler scheduler(model_, options_);
  Request endless = varied(1);
  endless.generate.n_predict = -1;
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(*scheduler.submit(endless, sink()));
  for (int i = 0; i < 5; ++i) scheduler.step();
  EXPECT_TRUE(scheduler.cancel(ids[0]));  // runs
  EXPECT_TRUE(scheduler.cancel(ids[5]));  // waits
  EXPECT_FALSE(scheduler.cancel(99));
  scheduler.step();
  EXPECT_EQ(outcomes_[ids[0]].finished->reason, FinishReason::cancelled);
  EXPECT_EQ(outcomes_[ids[5]].finished->reason, FinishReason::cancelled);
  EXPECT_EQ(scheduler.figures().n_running, 4);  // the fifth took the place
  Request late = endless;
  late.deadline = std::chrono::steady_clock::now();
  const RequestId waits = *scheduler.submit(late, sink());
  scheduler.step();
  EXPECT_EQ(outcomes_[waits].finished->reason, FinishReason::late);
  EXPECT_EQ(scheduler.figures().n_late, 1);
  run(scheduler);
  EXPECT_TRUE(outcomes_[ids[1]].finished->context_full);
  EXPECT_EQ(outcomes_[ids[1]].finished->n_answer, 128 - static_cast<int64_t>(endless.prompt.size()) + 1);
}

// A listener that does not keep up: its place goes to who waits, and its answer goes on where it was.
TEST_F(SchedulerTest, WhoIsHeldMakesRoomAndGoesOnTheSame) {
  options_.context.n_sequences = 1;
  for (const int64_t swap : {int64_t{0}, int64_t{1} << 20}) {
    options_.swap_bytes_max = swap;
    for (const bool caches : {true, false}) {
      options_.caches_prompts = caches;
      outcomes_.clear();
      Scheduler scheduler(model_, options_);
      Request slow = varied(4), other = varied(5);
      slow.generate.n_predict = 40;
      const RequestId held = *scheduler.submit(slow, sink()), waits = *scheduler.submit(other, sink());
      EXPECT_TRUE(scheduler.hold(held));  // takes effect once it has drawn
      while (outcomes_[held].ids.empty()) ASSERT_TRUE(scheduler.step());
      run(scheduler);
      EXPECT_EQ(outcomes_[held].ids.size(), 1u);
      EXPECT_TRUE(outcomes_[waits].finished);
      EXPECT_EQ(scheduler.figures().n_held, 1);
      EXPECT_EQ(scheduler.figures().n_running, 0);
      EXPECT_EQ(scheduler.figures().n_positions_used, 0);
      EXPECT_FALSE(scheduler.step());
      scheduler.resume(held);
      for (int i = 0; i < 5; ++i) scheduler.step();
      EXPECT_GT(outcomes_[held].ids.size(), 1u);
      scheduler.hold(held);
      run(scheduler);
      EXPECT_EQ(scheduler.figures().n_held, 1);
      scheduler.resume(held);
      run(scheduler);
      expect_as_alone(slow, outcomes_[held]);
      expect_as_alone(other, outcomes_[waits]);
      EXPECT_EQ(scheduler.figures().n_held, 0);
      EXPECT_EQ(scheduler.figures().n_preempted, 0);
      EXPECT_FALSE(scheduler.hold(held));
    }
  }
}

TEST_F(SchedulerTest, WhoIsHeldCanBeCancelledAndLate) {
  Scheduler scheduler(model_, options_);
  Request endless = varied(1), late = varied(2);
  endless.generate.n_predict = late.generate.n_predict = -1;
  late.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  const RequestId first = *scheduler.submit(endless, sink()), second = *scheduler.submit(late, sink());
  while (outcomes_[first].ids.empty()) ASSERT_TRUE(scheduler.step());
  scheduler.hold(first);
  scheduler.hold(second);
  run(scheduler);
  EXPECT_TRUE(scheduler.cancel(first));
  scheduler.step();
  ASSERT_TRUE(outcomes_[first].finished);
  EXPECT_EQ(outcomes_[first].finished->reason, FinishReason::cancelled);
  while (!outcomes_[second].finished) scheduler.step();
  EXPECT_EQ(outcomes_[second].finished->reason, FinishReason::late);
  EXPECT_EQ(scheduler.figures().n_held + scheduler.figures().n_running, 0);
  EXPECT_EQ(scheduler.figures().n_positions_used, 0);
  scheduler.resume(first);  // it is over: nothing happens
  EXPECT_FALSE(scheduler.step());
}

TEST_F(SchedulerTest, AStopIdEndsTheAnswer) {
  Scheduler scheduler(model_, options_);
  Request r = varied(4);
  r.generate.n_predict = 20;
  const RequestId whole = *scheduler.submit(r, sink());
  run(scheduler);
  const std::vector<TokenId> ids = outcomes_[whole].ids;
  const auto at = std::find(ids.begin(), ids.end(), ids[5]);
  r.generate.stop_ids = {95, ids[5]};
  const auto n = std::min(at, std::find(ids.begin(), ids.end(), 95)) - ids.begin() + 1;
  const RequestId cut = *scheduler.submit(r, sink());
  run(scheduler);
  EXPECT_EQ(outcomes_[cut].ids, std::vector<TokenId>(ids.begin(), ids.begin() + n));
  EXPECT_EQ(outcomes_[cut].finished->reason, FinishReason::stop);
  expect_as_alone(r, outcomes_[cut]);
  r.generate.stop_ids = {96};
  EXPECT_THAT(refusal(scheduler, r), HasSubstr("stop id 96: the vocabulary has ids 0 to 95"));
}

TEST_F(SchedulerTest, ALongPromptHoldsUpNeitherAnswersNorShortPrompts) {
  options_.gap_ms_max = 1e-9;  // as on a machine where a step beside answers affords one prompt token
  options_.context.n_ubatch = 16;
  Scheduler scheduler(model_, options_);
  Request talker = varied(1);
  talker.prompt = tokens(3);
  talker.generate.n_predict = 100;
  const RequestId talks = *scheduler.submit(talker, sink());
  for (int i = 0; i < 3; ++i, ++n_steps_) scheduler.step();
  Request slow = varied(4), brief = varied(5);
  slow.prompt = tokens(90);
  brief.prompt = tokens(5, 3);
  brief.generate.n_predict = slow.generate.n_predict = 2;
  const RequestId reads = *scheduler.submit(slow, sink());
  const RequestId short_one = *scheduler.submit(brief, sink());
  const auto before = static_cast<int64_t>(outcomes_[talks].ids.size());
  for (int i = 0; i < 10; ++i, ++n_steps_) scheduler.step();
  EXPECT_EQ(static_cast<int64_t>(outcomes_[talks].ids.size()), before + 10);  // a token in every step
  EXPECT_TRUE(outcomes_[short_one].finished);
  EXPECT_FALSE(outcomes_[reads].finished);
  run(scheduler);
  expect_as_alone(slow, outcomes_[reads]);
  expect_as_alone(brief, outcomes_[short_one]);
  expect_as_alone(talker, outcomes_[talks]);
}

TEST_F(SchedulerTest, AnyOrderOfSubmittingAndCancellingGivesTheSameAnswers) {
  options_.n_waiting_max = 1000;
  Scheduler scheduler(model_, options_);
  test::Random random(7);
  std::map<RequestId, Request> requests;
  for (int i = 0; i < 600; ++i) {
    if (random.below(4) == 0) {
      const Request r = varied(static_cast<int>(random.below(40)));
      requests[*scheduler.submit(r, sink())] = r;
    }
    if (random.below(12) == 0 && !requests.empty())
      scheduler.cancel(1 + static_cast<RequestId>(random.below(static_cast<int>(requests.size()))));
    scheduler.step();
  }
  run(scheduler);
  int n_whole = 0;
  for (const auto& [id, request] : requests) {
    ASSERT_TRUE(outcomes_.at(id).finished);
    if (outcomes_.at(id).finished->reason == FinishReason::cancelled) continue;
    if (++n_whole % 4 == 0) expect_as_alone(request, outcomes_.at(id));
  }
  EXPECT_GT(n_whole, 40);
  EXPECT_EQ(scheduler.figures().n_positions_used, 0);
}

TEST_F(SchedulerTest, ServesThreadsAndEndsWhenAsked) {
  options_.n_waiting_max = 100;
  Scheduler scheduler(model_, options_);
  std::mutex mutex;
  std::condition_variable all_over;
  int n_over = 0, n_over_told = 0;
  std::map<RequestId, std::vector<TokenId>> ids;
  const RequestSink count = [&](RequestId id, const RequestEvent& event) {
    const std::lock_guard lock(mutex);
    if (const auto* token = std::get_if<RequestToken>(&event)) ids[id].push_back(token->id);
    if (std::get_if<RequestFinished>(&event) && ++n_over == 24) all_over.notify_all();
  };
  std::map<RequestId, Request> requests;
  {
    const std::jthread steps([&](std::stop_token stop) {
      scheduler.run(stop, [&] {
        const std::lock_guard told(mutex);
        n_over_told = n_over;
      });
    });
    std::vector<std::jthread> clients;
    for (int c = 0; c < 3; ++c) {
      clients.emplace_back([&, c] {
        for (int i = 0; i < 8; ++i) {
          const Request r = varied(c * 8 + i);
          const RequestId id = *scheduler.submit(r, count);
          const std::lock_guard lock(mutex);
          requests[id] = r;
        }
      });
    }
    clients.clear();
    std::unique_lock lock(mutex);
    ASSERT_TRUE(all_over.wait_for(lock, std::chrono::seconds(60), [&] { return n_over == 24; }));
  }
  EXPECT_EQ(n_over_told, 24);  // the last step is followed by the call as well
  for (const auto& [id, request] : requests) {
    Context context(model_, {.n_ctx = 128, .n_threads = 1});
    EXPECT_EQ(ids[id], Generator(context).run(request.prompt, request.generate).ids);
  }
}

}  // namespace
}  // namespace assay
