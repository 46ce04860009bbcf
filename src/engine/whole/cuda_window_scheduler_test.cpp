// Models whose layers look back over a window, on a GPU: what lies behind it is given back, and requests have what they
// have alone on the CPU, bit by bit: at once, behind a prefix hit, in a pool that is too small, after a restart.
#include <gtest/gtest.h>

#include <filesystem>
#include <string_view>

#include "engine/context_state.h"
#include "support/engine/on_gpu.h"
#include "support/engine/random_schedule.h"
#include "support/engine/scheduler_test_base.h"
#include "support/shared_data.h"

namespace assay {
namespace {

// Windows of 8 positions, beside layers that see everything; gpt-oss with sinks.
class CudaWindowScheduler : public test::OnGpu<test::SchedulerTest>, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
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
};

TEST_P(CudaWindowScheduler, ManyAtOnceEqualEachAloneOnTheCpu) {
  for (const bool caches : {true, false}) {
    options_.caches_prompts = caches;
    Scheduler scheduler(model_, options_);
    expect_all_as_alone(scheduler, 24, [this](int i) { return request(i); });
    EXPECT_EQ(scheduler.figures().n_prompt_tokens_cached > 0, caches);
    if (!caches) {
      EXPECT_EQ(scheduler.figures().n_pages_free, scheduler.figures().n_pages);
      EXPECT_EQ(scheduler.figures().cache_bytes_used, 0);
    }
  }
}

TEST_P(CudaWindowScheduler, AHitWhoseWindowIsGoneIsReadAgainAndKeptFromThenOn) {
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
  for (const int round : {0, 1}) {
    Request other = r;  // another conversation with the same beginning
    other.prompt = tokens(100);
    for (int i = 0; i < 60; ++i) other.prompt.push_back(150 + 20 * round + i % 3);
    EXPECT_EQ(n_cached(scheduler, other), round == 0 ? 0 : 100) << round;
  }
}

// As on the CPU: a page before the last one, that one, and the next.
TEST_P(CudaWindowScheduler, MemoryInUseIsBounded) {
  options_.context.n_sequences = 1;
  options_.context.n_ctx = 512;
  options_.caches_prompts = false;
  Request r = request(1);
  r.prompt = tokens(100);
  r.generate = {};
  r.generate.n_predict = 390;
  int64_t most = 0;
  {
    Scheduler scheduler(model_, options_);
    scheduler.submit(r, [](RequestId, const RequestEvent&) {});
    while (scheduler.step()) most = std::max(most, scheduler.figures().cache_bytes_used);
  }
  Context context(model_, options_.context);
  const ops::CachePages pages = context.state().executor->pages();
  const auto all = static_cast<int64_t>(pages.page_bytes), windows = static_cast<int64_t>(pages.window_bytes);
  ASSERT_GT(windows, 0);
  EXPECT_GE(most, 8 * (all - windows) + 2 * windows);
  EXPECT_LE(most, 8 * (all - windows) + 3 * windows);
}

TEST_P(CudaWindowScheduler, PreemptedRequestsHaveTheirAnswers) {
  options_.context.n_positions_max = 256;  // 4 pages for four requests of up to 3
  for (const int64_t swap : {int64_t{0}, int64_t{1} << 30}) {
    options_.swap_bytes_max = swap;
    const bool is_split =
        swap > 0 && std::string_view(GetParam()) != "arch/gemma3n";  // which hands over several values
    options_.context.n_gpu_layers = is_split ? 1 : -1;
    Scheduler scheduler(model_, options_);
    expect_all_as_alone(scheduler, 16, [this](int i) { return request(i); });
    const SchedulerFigures f = scheduler.figures();
    EXPECT_GT(f.n_preempted, 0);
    EXPECT_EQ(f.n_pages, 4);
  }
}

TEST_P(CudaWindowScheduler, PromptsOutliveTheScheduler) {
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
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CudaWindowScheduler,
                         ::testing::Values("arch/gemma2", "tiny/gemma3", "arch/gemma3n", "arch/gptoss", "arch/mimo2"),
                         [](const auto& parameters) {
                           std::string name = parameters.param;
                           name.erase(0, name.find('/') + 1);
                           return name;
                         });

class CudaWindowSchedule : public test::OnGpu<test::RandomSchedule> {};

TEST_F(CudaWindowSchedule, EndsWithEveryAnswerAndNoPage) {
  const auto path = test::shared("goldens/arch/gemma2.gguf");
  ASSAY_REQUIRE_FILE(path);
  model_ = Model::load(path.string(), {.tokenizer = false});
  for (uint64_t seed = 1; seed <= 4; ++seed) walk(250, seed);
}

}  // namespace
}  // namespace assay
