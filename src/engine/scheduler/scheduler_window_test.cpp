// Models whose layers look back over a window: requests have what they have alone, bit by bit, at once, behind a prefix
// hit far from the end of what is kept, in a pool that is too small, after a restart.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/context_state.h"
#include "engine/scheduler/scheduler_state.h"
#include "support/engine/scheduler_test_base.h"
#include "support/rounds.h"
#include "support/shared_data.h"

namespace assay {
namespace {

// Windows of 8 positions, beside layers that see everything; gpt-oss with sinks.
class WindowScheduler : public test::SchedulerTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    const auto path = test::shared(std::string("goldens/") + GetParam() + ".gguf");
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
    SchedulerTest::expect_all_as_alone(scheduler, n, [this](int i) { return request(i); });
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

// The layers with a window have a pool of fewer pages than the others: of requests that run what they hold at most, and
// a share of what is over, which makes room.
TEST_P(WindowScheduler, TheirPoolHasWhatIsHeldAtMost) {
  options_.context.n_ctx = 2048;
  options_.context.n_sequences = 2;
  const auto bytes = [](const Context& context) { return context.memory().cache_bytes; };
  Scheduler scheduler(model_, options_);
  const Context plain(model_, options_.context);
  const ops::CachePages pages = scheduler.state().context.state().executor->pages();
  EXPECT_EQ(pages.n_pages, 64);
  // Windows of 8: two requests with three lengths of three pages and a page to write into, a batch of 24 tokens, and a
  // quarter of 64 pages.
  EXPECT_EQ(pages.n_free, 2 * (3 * 3 + 1) + 1 + 16);
  EXPECT_EQ(bytes(plain) - bytes(scheduler.context()), (64 - 37) * static_cast<int64_t>(pages.window_bytes));
  std::map<RequestId, Request> requests;
  for (int i = 0; i < test::unless_sanitized(20, 8); ++i) {
    Request r = request(i);
    r.prompt = tokens(200 + 17 * i, i);
    r.generate.n_predict = 30;
    requests[*scheduler.submit(r, sink())] = r;
  }
  run(scheduler);
  for (const auto& [id, r] : requests) expect_as_alone(r, outcomes_.at(id));
  EXPECT_EQ(scheduler.figures().n_preempted, 0);
  EXPECT_EQ(scheduler.figures().n_positions_used, 0);
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

// A file has the windows that were kept: the same prompt and the next turn are hits, a beginning is read again.
TEST_P(WindowScheduler, PromptsOutliveTheScheduler) {
  options_.prompt_folder = (folder_ / "prompts").string();
  options_.context.n_ctx = 400;
  Request r = request(2);
  r.prompt = tokens(170, 2);
  r.generate.n_predict = 150;
  std::vector<TokenId> next_turn = r.prompt;
  {
    Scheduler first(model_, options_);
    EXPECT_EQ(n_cached(first, r), 0);
    const std::vector<TokenId>& answer = outcomes_.begin()->second.ids;
    next_turn.insert(next_turn.end(), answer.begin(), answer.end());
  }
  Request next = r, other = r;
  next.prompt = next_turn;
  next.generate.n_predict = other.generate.n_predict = 10;
  other.prompt = tokens(110, 2);
  other.prompt.back() = 150;
  for (const auto& [wanted, n] : {std::pair(r, 128), std::pair(next, 256), std::pair(other, 0)}) {
    options_.prompt_folder = (folder_ / ("prompts " + std::to_string(n))).string();
    std::filesystem::copy((folder_ / "prompts"), options_.prompt_folder);
    Scheduler second(model_, options_);
    EXPECT_EQ(n_cached(second, wanted), n);
    EXPECT_EQ(second.figures().n_prompt_tokens_read, n);
  }
}

// Guesses are cut off, also where a page begins; drafted by looking up, of a prompt that repeats itself.
TEST_P(WindowScheduler, GuessesChangeNothing) {
  options_.drafts.kind = DraftKind::ngram;
  Scheduler scheduler(model_, options_);
  for (int i = 0; i < 6; ++i) {
    Request r = request(i);
    r.prompt.clear();
    for (int t = 0; t < 60 + i; ++t) r.prompt.push_back(t % 7);
    r.generate.n_predict = 140;
    r.generate.sampling.temperature = i % 2 == 0 ? 0 : 50;  // flat, whatever the model is sure of
    r.generate.sampling.top_k = 0;
    r.generate.sampling.min_p = 0;
    r.generate.sampling.top_p = 1;
    // Three tokens by turns at random: what followed the last three tokens before is wrong as often as not.
    static constexpr uint64_t kFew[5] = {7};
    if (i % 2 == 1) r.generate.mask = [](std::span<const TokenId>) { return std::span<const uint64_t>(kFew); };
    n_cached(scheduler, r);
  }
  EXPECT_GT(scheduler.figures().n_drafted, scheduler.figures().n_accepted);
}

// Where positions are full it goes back to a place whose window is gone, and reads from the begin.
TEST_P(WindowScheduler, GoesOnWhereItsPositionsAreFull) {
  options_.context.n_ctx = 200;
  options_.context.n_sequences = 1;
  for (const bool caches : {false, true}) {
    options_.caches_prompts = caches;
    Scheduler scheduler(model_, options_);
    Request r = request(4);
    r.prompt = tokens(90);
    r.generate.n_predict = 300;
    r.make_room = drop_older_half(80, 200);
    Context context(model_, options_.context);
    Generator generator(context);
    generator.set_make_room(r.make_room);
    const Generation expected = generator.run(r.prompt, r.generate), found = run_request(scheduler, r);
    EXPECT_GT(expected.n_dropped, 0);
    EXPECT_EQ(found.n_dropped, expected.n_dropped);
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_EQ(scheduler.figures().n_positions_used, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, WindowScheduler,
                         ::testing::Values("arch/gemma2", "tiny/gemma3", "arch/gemma3n", "arch/gemma4-e", "arch/gptoss",
                                           "arch/cohere2", "arch/mimo2", "arch/olmo3", "arch/graniteswa"),
                         [](const auto& parameters) {
                           std::string name = parameters.param;
                           name.erase(0, name.find('/') + 1);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace assay
