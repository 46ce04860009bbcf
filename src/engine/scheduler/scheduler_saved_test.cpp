// Saved prompts come beside the work: while a disk is slow or hangs every other answer grows, who waits for pages can be
// cancelled, and what is counted is what it would be on a fast one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "assay/override.h"
#include "engine/scheduler/scheduler_state.h"
#include "support/engine/late_images.h"
#include "support/engine/scheduler_test_base.h"
#include "support/rounds.h"

namespace assay {
namespace {

class SavedScheduler : public test::SchedulerTest {
 protected:
  SavedScheduler() {
    options_.context.n_ctx = 256;
    options_.prompt_folder = (folder_ / "saved").string();
    options_.on_notice = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      notices_.emplace_back(line);
    };
    saved_ = varied(4);
    saved_.prompt = tokens(200);
    Scheduler scheduler(model_, options_);
    EXPECT_EQ(n_cached(scheduler, saved_), 0);
    outcomes_.clear();
  }

  // From now on, before each page.
  static void slow_down(Scheduler& scheduler, std::function<void()> before) {
    Scheduler::State& state = scheduler.state();
    state.folder->on_read([&state] { state.tell_news(); }, std::move(before));
  }
  RequestId stream(Scheduler& scheduler) {
    stream_ = varied(1);
    stream_.prompt = tokens(20, 3);
    stream_.generate.n_predict = 60;
    const RequestId id = *scheduler.submit(stream_, sink());
    while (outcomes_[id].ids.empty()) scheduler.step();
    return id;
  }
  static std::vector<std::filesystem::path> files(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> list;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".prefix") list.push_back(entry.path());
    }
    return list;
  }

  Request saved_, stream_;
  std::mutex mutex_;
  std::vector<std::string> notices_;
};

TEST_F(SavedScheduler, WhileTheDiskHangsAnswersGrowAndWhoWaitsForItCanBeCancelled) {
  std::promise<void> turns;
  Scheduler scheduler(model_, options_);
  slow_down(scheduler, [turned = turns.get_future().share()] { turned.wait(); });
  const RequestId b = stream(scheduler);
  const RequestId a = *scheduler.submit(saved_, sink());
  for (int i = 0; i < 10; ++i) {
    const size_t n = outcomes_[b].ids.size();
    EXPECT_TRUE(scheduler.step());
    EXPECT_EQ(outcomes_[b].ids.size(), n + 1) << "step " << i;
  }
  EXPECT_FALSE(outcomes_[a].started);
  EXPECT_EQ(scheduler.figures().n_running, 2);
  EXPECT_TRUE(scheduler.cancel(a));
  scheduler.step();
  ASSERT_TRUE(outcomes_[a].finished);
  EXPECT_EQ(outcomes_[a].finished->reason, FinishReason::cancelled);
  EXPECT_EQ(scheduler.figures().n_running, 1);
  // Alone with the disk: nothing is there to do, and a cancellation is heard at once.
  run(scheduler);
  expect_as_alone(stream_, outcomes_[b]);
  EXPECT_EQ(scheduler.figures().n_positions_used, 0);
  const RequestId c = *scheduler.submit(saved_, sink());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(scheduler.step());
  EXPECT_TRUE(scheduler.cancel(c));
  scheduler.step();
  EXPECT_TRUE(outcomes_[c].finished);
  EXPECT_FALSE(scheduler.step());
  // Late ones end as well, and once the disk turns again there are pages.
  Request late = saved_;
  late.deadline = std::chrono::steady_clock::now();
  const RequestId d = *scheduler.submit(late, sink());
  run(scheduler);
  EXPECT_EQ(outcomes_[d].finished->reason, FinishReason::late);
  turns.set_value();
  EXPECT_EQ(n_cached(scheduler, saved_), 192);
  EXPECT_TRUE(notices_.empty());
}

TEST_F(SavedScheduler, ASlowDiskChangesNoAnswerAndNoCount) {
  for (const int delay_us : {0, 200, 3000}) {
    for (const bool late : {false, true}) {
      outcomes_.clear();
      Scheduler scheduler(model_, options_);
      slow_down(scheduler, [=] { std::this_thread::sleep_for(std::chrono::microseconds(delay_us)); });
      const test::LateImages* const images =
          late ? &test::LateImages::put_into(const_cast<Context&>(scheduler.context())) : nullptr;
      const RequestId b = stream(scheduler);
      std::map<RequestId, Request> choices;
      for (uint64_t i = 0; i < 4; ++i) {
        Request r = saved_;
        r.generate.request = i;
        choices[*scheduler.submit(r, sink())] = r;
      }
      run(scheduler);
      expect_as_alone(stream_, outcomes_.at(b));
      int64_t n_cached = 0;
      for (const auto& [id, r] : choices) {
        expect_as_alone(r, outcomes_.at(id));
        n_cached += outcomes_.at(id).started.value().n_prompt_cached;
      }
      const SchedulerFigures f = scheduler.figures();
      EXPECT_EQ(f.n_prompt_tokens_read, 192);  // once
      EXPECT_EQ(n_cached, 192 + 3 * 199);      // the others are forks of the first
      EXPECT_EQ(f.n_prompt_tokens_cached, n_cached);
      EXPECT_EQ(f.n_positions_used, 0);
      EXPECT_TRUE(images == nullptr || images->n_unready > 0);
    }
  }
  EXPECT_TRUE(notices_.empty());
}

// The one that others follow is cancelled while its pages come: the next one asks for them itself.
TEST_F(SavedScheduler, WhoFollowsOneThatIsCancelledReadsItself) {
  Scheduler scheduler(model_, options_);
  std::promise<void> turns;
  slow_down(scheduler, [turned = turns.get_future().share()] { turned.wait(); });
  const RequestId first = *scheduler.submit(saved_, sink());
  Request other = saved_;
  other.generate.request = 1;
  const RequestId second = *scheduler.submit(other, sink());
  scheduler.step();
  scheduler.cancel(first);
  scheduler.step();
  EXPECT_TRUE(outcomes_[first].finished);
  EXPECT_FALSE(outcomes_[second].started);
  turns.set_value();
  run(scheduler);
  expect_as_alone(other, outcomes_[second]);
  EXPECT_EQ(outcomes_[second].started.value().n_prompt_cached, 192);
  EXPECT_EQ(scheduler.figures().n_prompt_tokens_read, 192);
}

// One page of it is damaged: what stands before it is taken, the rest is read as a prompt is, and one line says so.
TEST_F(SavedScheduler, ADamagedFileIsAColdStartOfItsRestAndOneLine) {
  const std::vector<std::filesystem::path> saved = files(options_.prompt_folder);
  ASSERT_EQ(saved.size(), 1u);
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(saved.front()));
  {
    std::fstream file(saved.front(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(size - 1);
    file.put('\x55');
  }
  {
    Scheduler scheduler(model_, options_);
    slow_down(scheduler, [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
    const RequestId b = stream(scheduler);
    Request longer = saved_;
    longer.prompt.insert(longer.prompt.end(), 20, 7);
    const RequestId a = *scheduler.submit(saved_, sink()), c = *scheduler.submit(longer, sink());
    run(scheduler);
    expect_as_alone(stream_, outcomes_[b]);
    expect_as_alone(saved_, outcomes_[a]);
    expect_as_alone(longer, outcomes_[c]);
    EXPECT_LT(outcomes_[a].started.value().n_prompt_cached, 192);
    EXPECT_EQ(scheduler.figures().n_prompt_tokens_read % 64, 0);
  }
  EXPECT_THAT(notices_, ::testing::ElementsAre(::testing::HasSubstr("damaged")));
}

// Other metadata in the place of the file's make another model: its prompts are its own.
TEST_F(SavedScheduler, AModelWithOtherMetadataHasPromptsOfItsOwn) {
  const std::string path = (folder_ / "tiny.gguf").string();
  const std::shared_ptr<const Model> plain = model_;
  for (const int round : {0, 1}) {
    model_ = load_overridden(path, {"llama.rope.freq_base=float:123"}, {.tokenizer = false}).model;
    Scheduler scheduler(model_, options_);
    EXPECT_EQ(n_cached(scheduler, saved_), 192 * round);
  }
  model_ = plain;
  Scheduler scheduler(model_, options_);
  EXPECT_EQ(n_cached(scheduler, saved_), 192);
}

TEST_F(SavedScheduler, NobodyElseMayReadTheFolder) {
  namespace fs = std::filesystem;
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  EXPECT_EQ(fs::status(options_.prompt_folder).permissions() & kOthers, fs::perms::none);
  int n = 0;
  for (const auto& entry : fs::directory_iterator(options_.prompt_folder)) {
    EXPECT_EQ(entry.status().permissions() & kOthers, fs::perms::none) << entry.path();
    ++n;
  }
  EXPECT_EQ(n, 2);  // the prompt, and which model is which
}

// In a pool that is too small whoever waits for pages from a file gives way as others do.
TEST_F(SavedScheduler, PagesThatComeToATightPool) {
  options_.context.n_positions_max = 320;
  for (const int64_t swap : {0, 1 << 20}) {
    options_.swap_bytes_max = swap;
    outcomes_.clear();
    Scheduler scheduler(model_, options_);
    slow_down(scheduler, [] { std::this_thread::sleep_for(std::chrono::microseconds(500)); });
    std::map<RequestId, Request> requests;
    for (int i = 0; i < test::unless_sanitized(12, 6); ++i) {
      Request r = i % 2 == 0 ? saved_ : varied(i);
      if (i % 2 == 1) r.prompt = tokens(30 + i, i % 5), r.generate.n_predict = 120;
      r.generate.request = static_cast<uint64_t>(i);
      requests[*scheduler.submit(r, sink())] = r;
    }
    run(scheduler);
    for (const auto& [id, r] : requests) {
      SCOPED_TRACE(id);
      expect_as_alone(r, outcomes_.at(id));
    }
    const SchedulerFigures f = scheduler.figures();
    EXPECT_GT(f.n_prompt_tokens_read, 0);
    EXPECT_LE(f.n_prompt_tokens_read, f.n_prompt_tokens_cached);
    EXPECT_EQ(f.n_positions_used, 0);
  }
}

}  // namespace
}  // namespace assay
