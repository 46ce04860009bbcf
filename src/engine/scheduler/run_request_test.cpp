// One request on a scheduler of its own has what the plain loop of a Generator gives it.
#include <gmock/gmock.h>

#include <stdexcept>

#include "support/best_known.h"
#include "support/engine/scheduler_test_base.h"
#include "support/rounds.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

class SingleRequestTest : public test::SchedulerTest {
 protected:
  SingleRequestTest() { options_.context.n_sequences = 1; }

  static void expect_same(const Generation& found, const Generation& expected) {
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_EQ(found.text, expected.text);
    EXPECT_EQ(found.finish_reason, expected.finish_reason);
    EXPECT_EQ(found.context_full, expected.context_full);
    EXPECT_EQ(found.n_prompt, expected.n_prompt);
    EXPECT_EQ(found.n_prompt_cached, expected.n_prompt_cached);
    EXPECT_EQ(found.n_dropped, expected.n_dropped);
    EXPECT_EQ(found.n_in_context, expected.n_in_context);
    EXPECT_EQ(found.prefill.tokens, expected.prefill.tokens);
    EXPECT_EQ(found.decode.tokens, expected.decode.tokens);
    ASSERT_EQ(found.logprobs.size(), expected.logprobs.size());
    for (size_t i = 0; i < expected.logprobs.size(); ++i) {
      EXPECT_EQ(found.logprobs[i].logprob, expected.logprobs[i].logprob);
      EXPECT_EQ(found.logprobs[i].top, expected.logprobs[i].top);
    }
  }
};

TEST_F(SingleRequestTest, HasThePlainLoopsAnswer) {
  for (const DraftKind kind : {DraftKind::none, DraftKind::ngram}) {
    options_.drafts.kind = kind;
    options_.caches_prompts = false;
    Scheduler scheduler(model_, options_);
    for (int i = 0; i < 24; ++i) {
      SCOPED_TRACE(i);
      Request r = varied(i);
      if (i % 6 == 5) r.generate.n_predict = i % 4 == 1 ? 0 : -1;
      Context context(model_, options_.context);
      expect_same(run_request(scheduler, r), Generator(context).run(r.prompt, r.generate));
    }
    EXPECT_EQ(scheduler.figures().n_pages_free, scheduler.figures().n_pages);
  }
}

TEST_F(SingleRequestTest, GoesOnWhereItsPositionsAreFull) {
  options_.context.n_ctx = 40;
  for (const int64_t n_ubatch : test::unless_sanitized<std::vector<int64_t>>({1, 7, 64}, {7})) {
    options_.context.n_ubatch = n_ubatch;
    for (const bool keeps : {false, true}) {
      options_.caches_prompts = keeps;
      Scheduler scheduler(model_, options_);
      for (int i = 0; i < test::unless_sanitized(6, 3); ++i) {
        SCOPED_TRACE(i);
        Request r = varied(i);
        r.prompt = tokens(20 + i, keeps ? i : 0);  // no two of them begin alike where prompts are kept
        r.generate.n_predict = 90;
        r.make_room = drop_older_half(3, 40);
        Context context(model_, options_.context);
        Generator generator(context);
        generator.set_make_room(r.make_room);
        const Generation expected = generator.run(r.prompt, r.generate);
        EXPECT_GT(expected.n_dropped, 0);
        expect_same(run_request(scheduler, r), expected);
      }
      Request r = varied(1);
      r.generate.n_predict = -1;
      r.make_room = [](std::span<const TokenId> in_context, std::span<const TokenId> answer) {
        EXPECT_EQ(in_context.size(), 41u);
        EXPECT_EQ(in_context.back(), answer.back());
        return std::vector<TokenId>();
      };
      EXPECT_TRUE(run_request(scheduler, r).context_full);
      r.make_room = [](std::span<const TokenId>, std::span<const TokenId>) { return std::vector<TokenId>(41, 1); };
      EXPECT_THROW(run_request(scheduler, r), Error);
    }
  }
}

TEST_F(SingleRequestTest, TellsWhatIsReadAndEndsWhereItIsTold) {
  options_.context.n_ubatch = 8;
  Scheduler scheduler(model_, options_);
  Request r;
  r.prompt = tokens(30);
  r.generate.n_predict = 12;
  std::vector<std::pair<int64_t, int64_t>> told;
  r.progress = [&](int64_t done, int64_t total) { told.emplace_back(done, total); };
  int n_polls = 0;
  const Generation cut = run_request(scheduler, r, {}, [&] { return ++n_polls > 2; });
  EXPECT_EQ(cut.finish_reason, FinishReason::cancelled);
  EXPECT_TRUE(cut.ids.empty());
  EXPECT_EQ(cut.n_prompt_cached + cut.prefill.tokens, 16);
  EXPECT_EQ(told, (std::vector<std::pair<int64_t, int64_t>>{{8, 30}, {16, 30}}));
  told.clear();
  const Generation whole = run_request(scheduler, r);
  EXPECT_EQ(whole.n_prompt_cached, 16);
  EXPECT_EQ(told, (std::vector<std::pair<int64_t, int64_t>>{{8, 14}, {14, 14}}));
  Context context(model_, options_.context);
  EXPECT_EQ(whole.ids, Generator(context).run(r.prompt, r.generate).ids);
}

// Whatever is thrown reaches the caller, and the next request finds nothing of it.
TEST_F(SingleRequestTest, ThrowsOnWhatItsCallbacksThrow) {
  options_.caches_prompts = false;
  options_.context.n_ctx = 24;
  Scheduler scheduler(model_, options_);
  const auto refusal = [&](Request r) -> std::string {
    try {
      run_request(scheduler, std::move(r));
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  Request r;
  r.prompt = tokens(20);
  r.generate.n_predict = 12;
  Request bad = r;
  bad.progress = [](int64_t, int64_t) { throw std::logic_error("of progress"); };
  EXPECT_EQ(refusal(bad), "of progress");
  bad = r;
  bad.make_room = [](std::span<const TokenId>, std::span<const TokenId>) -> std::vector<TokenId> {
    throw std::logic_error("of room");
  };
  EXPECT_EQ(refusal(bad), "of room");
  bad = r;
  bad.generate.mask = [](std::span<const TokenId> answer) -> std::span<const uint64_t> {
    if (answer.size() == 2) throw std::runtime_error("of a mask");
    return {};
  };
  EXPECT_EQ(refusal(bad), "of a mask");
  bad = r;
  bad.prompt = tokens(25);
  EXPECT_THAT(refusal(bad), HasSubstr("25 tokens, the context holds 24: an n_ctx of"));
  const SchedulerFigures f = scheduler.figures();
  EXPECT_EQ(f.n_running + f.n_waiting + f.n_positions_used, 0);
  EXPECT_EQ(f.n_pages_free, f.n_pages);
  Context context(model_, options_.context);
  expect_same(run_request(scheduler, r), Generator(context).run(r.prompt, r.generate));
}

// A device that can begins with the token to come: of a greedy answer that runs alone, as long as one comes.
TEST_F(SingleRequestTest, SaysWhereTheBestTokenFollows) {
  options_.context.n_sequences = 2;
  Scheduler scheduler(model_, options_);
  test::BestKnown& executor = test::BestKnown::put_into(const_cast<Context&>(scheduler.context()));
  Request r;
  r.prompt = tokens(5);
  r.generate.sampling.temperature = 0;
  const auto counts = [&](int64_t n_predict, int64_t n_logprobs) {
    r.generate.n_predict = n_predict;
    r.generate.n_top_logprobs = n_logprobs;
    executor.n_runs = executor.n_followed = 0;
    Context context(model_, options_.context);
    EXPECT_EQ(run_request(scheduler, r).ids, Generator(context).run(r.prompt, r.generate).ids);
    r.prompt[0] += 1;  // nothing is held of the next one
    return std::pair(executor.n_runs, executor.n_followed);
  };
  EXPECT_EQ(counts(12, -1), std::pair(11, 10));  // after the last run a token is drawn, but not run
  EXPECT_EQ(counts(2, -1), std::pair(1, 0));
  EXPECT_EQ(counts(12, 0), std::pair(11, 0));  // for logprobs all logits are read
  executor.n_followed = 0;
  std::map<RequestId, Request> requests;
  for (int i = 0; i < 2; ++i) {
    r.generate.n_predict = 12;
    r.generate.n_top_logprobs = -1;
    r.prompt = tokens(5, 1 + i);
    requests[*scheduler.submit(r, sink())] = r;
  }
  run(scheduler);
  EXPECT_EQ(executor.n_followed, 0);
  for (const auto& [id, request] : requests) expect_as_alone(request, outcomes_[id]);
}

// Every second one is held to a mask, which is asked by the runs.
TEST_F(SingleRequestTest, MasksAreAskedByTheRunWhereItRanks) {
  static constexpr uint64_t kFew[64] = {0x8421084210842108u, 0x1111111111111111u, 0xffu};
  options_.context.n_sequences = 4;
  options_.caches_prompts = false;
  Scheduler scheduler(model_, options_);
  test::BestKnown& executor = test::BestKnown::put_into(const_cast<Context&>(scheduler.context()));
  std::map<RequestId, Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request r;
    r.prompt = tokens(5 + i, 1 + i);
    r.generate.sampling.temperature = 0;
    r.generate.n_predict = 9;
    if (i % 2 == 1) {
      r.generate.mask = [](std::span<const TokenId> answer) {
        return answer.size() == 4 ? std::span<const uint64_t>() : std::span<const uint64_t>(kFew);
      };
    }
    requests[*scheduler.submit(r, sink())] = r;
  }
  run(scheduler);
  EXPECT_GE(executor.n_asked, 9);
  for (const auto& [id, request] : requests) expect_as_alone(request, outcomes_[id]);
}

TEST_F(SingleRequestTest, StepsOthersAlong) {
  options_.context.n_sequences = 3;
  Scheduler scheduler(model_, options_);
  std::map<RequestId, Request> others;
  for (int i = 0; i < 5; ++i) others.emplace(*scheduler.submit(varied(i), sink()), varied(i));
  const Request r = varied(7);
  const Generation found = run_request(scheduler, r);
  run(scheduler);
  Context context(model_, options_.context);
  EXPECT_EQ(found.ids, Generator(context).run(r.prompt, r.generate).ids);
  for (const auto& [id, request] : others) expect_as_alone(request, outcomes_[id]);
}

}  // namespace
}  // namespace assay
