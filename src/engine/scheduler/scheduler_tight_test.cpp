// Requests that share pages, are short of them, or guess ahead have what they have alone, bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/engine/late_images.h"
#include "support/engine/scheduler_test_base.h"
#include "support/random_numbers.h"
#include "support/rounds.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

class TightScheduler : public test::SchedulerTest {
 protected:
  TightScheduler() {
    options_.context.n_ctx = 256;
    options_.context.n_sequences = 4;
    options_.n_waiting_max = 1000;
  }

  // A request of many tokens: growing answers is what pages run short by.
  Request long_one(int i) const {
    Request r = varied(i);
    r.prompt = tokens(20 + i * 13 % 90, i % 3);
    r.generate.n_predict = 40 + i * 11 % 70;
    return r;
  }

  // All of them at once, each as alone.
};

TEST_F(TightScheduler, PreemptedRequestsHaveTheirAnswers) {
  options_.context.n_positions_max = 320;  // 5 pages for four requests of up to 4
  for (const int64_t swap : {int64_t{0}, int64_t{1} << 30}) {
    for (const bool caches : {true, false}) {
      options_.swap_bytes_max = swap;
      options_.caches_prompts = caches;
      Scheduler scheduler(model_, options_);
      expect_all_as_alone(scheduler, test::unless_sanitized(16, 6), [&](int i) { return long_one(i); });
      const SchedulerFigures f = scheduler.figures();
      EXPECT_GT(f.n_preempted, 0);
      EXPECT_EQ(f.n_swapped > 0, swap > 0);
      EXPECT_EQ(f.n_pages, 5);
      if (!caches) {
        EXPECT_EQ(f.n_pages_free, 5);
      }
    }
  }
}

// Pages leave and come back beside what runs: who waits for his stands aside; what is dropped meanwhile stays alive.
TEST_F(TightScheduler, PagesThatAreLateChangeNoAnswer) {
  options_.context.n_positions_max = 320;
  options_.swap_bytes_max = 1 << 30;
  options_.prompt_folder = (folder_ / "saved").string();
  Scheduler scheduler(model_, options_);
  const test::LateImages& executor = test::LateImages::put_into(const_cast<Context&>(scheduler.context()));
  expect_all_as_alone(scheduler, test::unless_sanitized(16, 6), [&](int i) { return long_one(i); });
  EXPECT_GT(scheduler.figures().n_swapped, 0);
  EXPECT_GT(executor.n_read, 0);
  EXPECT_GT(executor.n_unready, 0);
}

TEST_F(TightScheduler, APoolMustHoldOneRequest) {
  options_.context.n_positions_max = 255;
  EXPECT_THROW(Scheduler(model_, options_), Error);
  options_.context.n_positions_max = 256;
  Scheduler scheduler(model_, options_);
  Request r = varied(1);
  r.prompt = tokens(200);
  r.generate.n_predict = -1;
  const RequestId a = *scheduler.submit(r, sink()), b = *scheduler.submit(r, sink());
  run(scheduler);
  for (const RequestId id : {a, b}) {
    EXPECT_TRUE(outcomes_[id].finished->context_full);
    expect_as_alone(r, outcomes_[id]);
  }
}

TEST_F(TightScheduler, ChoicesOfOnePromptReadItOnce) {
  Scheduler scheduler(model_, options_);
  std::vector<RequestId> ids;
  Request r = varied(1);
  r.prompt = tokens(150);
  for (uint64_t i = 0; i < 4; ++i) {
    r.generate.request = i;
    ids.push_back(*scheduler.submit(r, sink()));
  }
  run(scheduler);
  const SchedulerFigures f = scheduler.figures();
  EXPECT_EQ(f.n_prompt_tokens, 600);
  EXPECT_EQ(f.n_prompt_tokens_cached, 3 * 149);
  for (uint64_t i = 0; i < 4; ++i) {
    r.generate.request = i;
    EXPECT_EQ(outcomes_[ids[i]].started->n_prompt_cached, i == 0 ? 0 : 149);
    expect_as_alone(r, outcomes_[ids[i]]);
  }
  // One that everybody follows goes away: the others read for themselves.
  outcomes_.clear();
  Request other = r;
  other.prompt = tokens(150, 5);
  options_.context.n_ubatch = 24;
  const RequestId first = *scheduler.submit(other, sink()), second = *scheduler.submit(other, sink());
  scheduler.step();
  scheduler.cancel(first);
  run(scheduler);
  expect_as_alone(other, outcomes_[second]);
}

TEST_F(TightScheduler, APrefixCountsToTheToken) {
  Scheduler scheduler(model_, options_);
  Request r = varied(1);
  r.prompt = tokens(100);
  r.generate.n_predict = 1;
  scheduler.submit(r, sink());
  run(scheduler);
  for (const int n_same : {1, 40, 63, 64, 65, 99}) {
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

// A model as its own draft, another one of the same vocabulary, and looking up.
TEST_F(TightScheduler, GuessesChangeNoAnswer) {
  test::TinyLlama spec;
  spec.d_model = 32;
  spec.d_ff = 64;
  spec.head_dim = 16;
  spec.n_ctx_train = 256;
  test::TinyLlamaWriter(spec).file().write(folder_ / "draft.gguf");
  const auto other = Model::load((folder_ / "draft.gguf").string(), {.tokenizer = false});
  struct Case {
    DraftKind kind;
    std::shared_ptr<const Model> model;
    int64_t n_positions_max;
  };
  for (const Case& c :
       {Case{DraftKind::model, model_, 0}, Case{DraftKind::model, other, 0}, Case{DraftKind::model, model_, 320},
        Case{DraftKind::ngram, nullptr, 0}, Case{DraftKind::ngram, nullptr, 320}}) {
    options_.drafts = {c.kind, 5, c.model};
    options_.context.n_positions_max = c.n_positions_max;
    Scheduler scheduler(model_, options_);
    expect_all_as_alone(scheduler, test::unless_sanitized(24, 6),
                        [&](int i) { return i % 2 == 0 ? long_one(i) : varied(i); });
    const SchedulerFigures f = scheduler.figures();
    EXPECT_GT(f.n_drafted, 0);
    EXPECT_LE(f.n_accepted, f.n_drafted);
    if (c.model == model_) {
      EXPECT_GT(f.n_accepted, f.n_drafted / 3);  // it draws with the same key
    }
    EXPECT_EQ(f.n_accepted_at.size(), 5u);
  }
}

TEST_F(TightScheduler, ADraftOfAnotherVocabularyIsRefusedByName) {
  test::TinyLlama spec;
  spec.vocab_size = 64;
  test::TinyLlamaWriter(spec).file().write(folder_ / "draft.gguf");
  options_.drafts = {DraftKind::model, 4, Model::load((folder_ / "draft.gguf").string(), {.tokenizer = false})};
  try {
    Scheduler scheduler(model_, options_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("another vocabulary"));
    EXPECT_THAT(error.what(), HasSubstr("64 tokens, the model has 96"));
  }
  options_.drafts = {DraftKind::model, 4, nullptr};
  EXPECT_THROW(Scheduler(model_, options_), Error);
  options_.drafts = {DraftKind::ngram, 0, nullptr};
  EXPECT_THROW(Scheduler(model_, options_), Error);
}

// What a program before this one saved is found, and where it is damaged the answer is the same.
TEST_F(TightScheduler, PromptsOutliveTheScheduler) {
  const std::filesystem::path folder = folder_ / "saved";
  options_.prompt_folder = folder.string();
  Request r = varied(4);
  r.prompt = tokens(150);
  const auto answer = [&](const Request& request) {
    outcomes_.clear();
    Scheduler scheduler(model_, options_);
    const RequestId id = *scheduler.submit(request, sink());
    run(scheduler);
    expect_as_alone(request, outcomes_[id]);
    EXPECT_EQ(scheduler.figures().n_prompt_tokens_read, outcomes_[id].finished->n_prompt_cached);
    return outcomes_[id].finished->n_prompt_cached;
  };
  EXPECT_EQ(answer(r), 0);
  EXPECT_EQ(answer(r), 128);
  Request longer = r;
  longer.prompt.insert(longer.prompt.begin() + 140, 30, 7);
  EXPECT_EQ(answer(longer), 128);
  Request other = r;
  other.salt = "another key";
  EXPECT_EQ(answer(other), 0);
  options_.context.cache_v = KvType::f32;
  EXPECT_EQ(answer(r), 0);
  options_.context.cache_v = KvType::f16;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".prefix") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
  std::vector<std::string> notices;
  options_.on_notice = [&](std::string_view line) { notices.emplace_back(line); };
  EXPECT_LT(answer(longer), 128 + 64);
  EXPECT_GT(notices.size(), 0u);
  options_.caches_prompts = false;
  EXPECT_THROW(Scheduler(model_, options_), Error);
}

// One request alone guesses ahead, too.
TEST_F(TightScheduler, GuessesOfOneRequestChangeNoAnswer) {
  for (const DraftKind kind : {DraftKind::ngram, DraftKind::model}) {
    int64_t n_drafted = 0, n_accepted = 0;
    for (int i = 0; i < test::unless_sanitized(10, 3); ++i) {
      const Request r = long_one(i);
      ContextOptions alone = options_.context;
      alone.n_sequences = 1;
      Context context(model_, alone);
      const Generation plain = Generator(context).run(r.prompt, r.generate);
      SchedulerOptions guesses;
      guesses.context = alone;
      guesses.caches_prompts = false;
      guesses.drafts = {kind, 6, kind == DraftKind::model ? model_ : nullptr};
      Scheduler scheduler(model_, guesses);
      const Generation guessed = run_request(scheduler, r);
      EXPECT_EQ(guessed.ids, plain.ids);
      ASSERT_EQ(guessed.logprobs.size(), plain.logprobs.size());
      for (size_t t = 0; t < plain.logprobs.size(); ++t)
        EXPECT_EQ(guessed.logprobs[t].logprob, plain.logprobs[t].logprob);
      EXPECT_EQ(guessed.finish_reason, plain.finish_reason);
      EXPECT_EQ(guessed.decode.tokens, plain.decode.tokens);
      n_drafted += guessed.n_drafted;
      n_accepted += guessed.n_accepted;
    }
    EXPECT_GT(n_drafted, 0);
    EXPECT_GT(n_accepted, 0);
  }
}

// Submitting, cancelling, choices of one prompt and preemption in any order; at the end every page is where it should
// be.
TEST_F(TightScheduler, AnyOrderUnderWantOfPages) {
  for (const uint64_t seed : {1, 2}) {
    options_.context.n_positions_max = 320;
    options_.swap_bytes_max = seed == 1 ? 0 : 1 << 20;
    options_.drafts.kind = seed == 1 ? DraftKind::none : DraftKind::ngram;
    outcomes_.clear();
    Scheduler scheduler(model_, options_);
    test::Random random(seed);
    std::map<RequestId, Request> requests;
    std::vector<RequestId> ids;
    for (int i = 0; i < test::unless_sanitized(1'000, 250); ++i) {
      if (random.below(12) == 0) {
        Request r = long_one(random.below(12));
        r.generate.request = static_cast<uint64_t>(random.below(3));
        const RequestId id = *scheduler.submit(r, sink());
        requests[id] = r;
        ids.push_back(id);
      }
      if (random.below(25) == 0 && !ids.empty())
        scheduler.cancel(ids[static_cast<size_t>(random.below(static_cast<int>(ids.size())))]);
      scheduler.step();
    }
    run(scheduler);
    int n_whole = 0;
    for (const auto& [id, request] : requests) {
      SCOPED_TRACE(id);
      ASSERT_TRUE(outcomes_.at(id).finished) << outcomes_.at(id).failure;
      if (outcomes_.at(id).finished->reason == FinishReason::cancelled) continue;
      if (++n_whole % 3 == 0) expect_as_alone(request, outcomes_.at(id));
    }
    EXPECT_GT(n_whole, test::unless_sanitized(20, 5));
    const SchedulerFigures f = scheduler.figures();
    EXPECT_GT(f.n_preempted, 0);
    EXPECT_EQ(f.n_positions_used, 0);
    EXPECT_EQ(f.n_running + f.n_waiting, 0);
  }
}

}  // namespace
}  // namespace assay
