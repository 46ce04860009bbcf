// A scheduler under random requests, cancellations and deadlines, on a pool that is too small for them: each answer is
// what it is alone, or the beginning of it where it was cut, and at the end every page is free. With saves_: prompts are
// saved as well, and read back from a disk that is slow and loses bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "engine/scheduler/scheduler_state.h"
#include "support/engine/scheduler_test_base.h"

namespace assay::test {

class RandomSchedule : public SchedulerTest {
 protected:
  bool has_images_ = true;  // of the model's pages: kept elsewhere where requests wait
  bool saves_ = false;
  void walk(int64_t n_steps, uint64_t seed) {
    SCOPED_TRACE(seed);
    random_ = seed * 2654435761u + 1;
    options_.context.n_ctx = 256;
    options_.context.n_sequences = 4;
    options_.context.n_positions_max = 320;  // 5 pages for four requests of up to 4
    options_.n_waiting_max = 12;
    options_.caches_prompts = seed % 2 == 0;
    options_.swap_bytes_max = seed % 3 == 0 || !has_images_ ? 0 : 1 << 20;
    options_.drafts.kind = seed % 4 < 2 ? DraftKind::ngram : DraftKind::none;
    if (saves_) {
      options_.caches_prompts = true;
      options_.prompt_folder = (folder_ / ("saved " + std::to_string(seed))).string();
    }
    Scheduler scheduler(model_, options_);
    if (saves_) make_slow(scheduler);
    std::map<RequestId, Request> requests;
    std::vector<RequestId> cut, aside;
    for (int64_t i = 0; i < n_steps; ++i) {
      if (below(100) < 22) {
        Request r = made();
        if (const auto id = scheduler.submit(r, sink())) {
          if (r.deadline) cut.push_back(*id);
          requests.emplace(*id, std::move(r));
        }
      }
      if (below(100) < 6 && !requests.empty()) {
        const RequestId id =
            std::next(requests.rbegin(), static_cast<std::ptrdiff_t>(below(std::min<uint64_t>(requests.size(), 12))))
                ->first;
        if (scheduler.cancel(id)) cut.push_back(id);
      }
      // Listeners that do not keep up for a while.
      if (below(100) < 8 && !requests.empty()) {
        const RequestId id =
            std::next(requests.rbegin(), static_cast<std::ptrdiff_t>(below(std::min<uint64_t>(requests.size(), 12))))
                ->first;
        if (scheduler.hold(id)) aside.push_back(id);
      }
      if (below(100) < 10 && !aside.empty()) {
        scheduler.resume(aside.back());
        aside.pop_back();
      }
      if (below(1000) == 0) {
        scheduler.cancel_all();
        for (const auto& [id, r] : requests) cut.push_back(id);
      }
      if (saves_ && below(64) == 0) damage_a_file();
      scheduler.step();
      ++n_steps_;
    }
    for (const RequestId id : aside) scheduler.resume(id);
    run(scheduler);
    std::sort(cut.begin(), cut.end());
    for (const auto& [id, request] : requests) {
      SCOPED_TRACE(id);
      check(request, outcomes_[id], std::binary_search(cut.begin(), cut.end(), id));
    }
    const SchedulerFigures f = scheduler.figures();
    EXPECT_EQ(f.n_running + f.n_waiting + f.n_positions_used, 0);
    EXPECT_GT(f.n_preempted, 0);
    EXPECT_GT(f.n_cancelled, 0);
    EXPECT_EQ(f.n_failed, 0);
    EXPECT_EQ(f.n_prompt_tokens_read > 0, saves_);
    EXPECT_LE(f.n_prompt_tokens_read, f.n_prompt_tokens_cached);
    if (!options_.caches_prompts) {
      EXPECT_EQ(f.n_pages_free, f.n_pages);
      EXPECT_EQ(f.cache_bytes_used, 0);
    }
    // What is kept of prompts holds no page that is wanted.
    Request all;
    all.prompt = tokens(200, 5);
    all.generate.n_predict = -1;
    const RequestId last = *scheduler.submit(all, sink());
    run(scheduler);
    expect_as_alone(all, outcomes_[last]);
    outcomes_.clear();
  }

 private:
  uint64_t below(uint64_t n) {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return (random_ >> 33) % n;
  }
  // Pages take as long as some steps do.
  void make_slow(Scheduler& scheduler) {
    Scheduler::State& state = scheduler.state();
    state.folder->on_read([&state] { state.tell_news(); },
                          [this] {
                            n_reads_ = (n_reads_ * 5 + 3) % 1024;
                            std::this_thread::sleep_for(std::chrono::microseconds(n_reads_ * 2));
                          });
  }
  void damage_a_file() {
    for (const auto& entry : std::filesystem::directory_iterator(options_.prompt_folder)) {
      std::error_code error;
      const auto size = static_cast<std::streamoff>(entry.file_size(error));
      if (error || entry.path().extension() != ".prefix" || below(3) > 0) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(size - 1 - static_cast<std::streamoff>(below(4096)));
      file.put('\x55');
      return;
    }
  }
  // Prompts of few beginnings, so that they share pages.
  Request made() {
    Request r = varied(static_cast<int>(below(1000)));
    r.prompt = tokens(1 + static_cast<int>(below(150)), static_cast<int>(below(3)));
    r.generate.n_predict = 1 + static_cast<int64_t>(below(90));
    r.salt = below(4) == 0 ? "other" : "";
    r.weight = 1 + static_cast<double>(below(3));
    if (below(40) == 0) r.deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(below(3000));
    return r;
  }
  void check(const Request& request, const Outcome& outcome, bool may_be_cut) const {
    ASSERT_TRUE(outcome.finished) << outcome.failure;
    const FinishReason reason = outcome.finished->reason;
    if (reason != FinishReason::cancelled && reason != FinishReason::late) {
      expect_as_alone(request, outcome);
      return;
    }
    EXPECT_TRUE(may_be_cut);
    if (outcome.ids.empty()) return;
    ContextOptions alone = options_.context;
    alone.backend = Backend::cpu;
    alone.n_sequences = 1;
    alone.n_positions_max = 0;
    alone.n_ubatch = 512;
    Context context(model_, alone);
    const Generation g = Generator(context).run(request.prompt, request.generate);
    ASSERT_LE(outcome.ids.size(), g.ids.size());
    EXPECT_TRUE(std::equal(outcome.ids.begin(), outcome.ids.end(), g.ids.begin()));
  }

  uint64_t random_ = 1;
  std::atomic<uint32_t> n_reads_ = 0;
};

}  // namespace assay::test
