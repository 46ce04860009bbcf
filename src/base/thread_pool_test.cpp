#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "assay/error.h"

namespace assay::base {
namespace {

TEST(ThreadPool, CallsEveryIndexOnce) {
  for (int n_threads : {1, 2, 3, 5, 17}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.n_threads(), n_threads);
    for (int64_t n : {0, 1, 2, 7, 64, 1000, 4099}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(n));
      std::atomic<bool> thread_ok{true};
      pool.run(n, [&](int64_t i, int thread) {
        calls[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
        if (thread < 0 || thread >= n_threads) thread_ok = false;
      });
      for (auto& count : calls) ASSERT_EQ(count.load(), 1);
      EXPECT_TRUE(thread_ok);
    }
  }
}

// Every round has a function object of its own on the stack and plain (not atomic) results: a worker that came late and
// ran an old function or an index twice would be seen here, and by the thread sanitizer.
TEST(ThreadPool, ManyTinyRoundsNeverMix) {
  for (int n_threads : {2, 4}) {
    ThreadPool pool(n_threads);
    std::vector<int64_t> last(8, -1);
    for (int64_t round = 0; round < 50'000; ++round) {
      const int64_t n = 2 + round % 7;
      pool.run(n, [&last, round](int64_t i, int) { last[static_cast<size_t>(i)] = round * 100 + i; });
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(last[static_cast<size_t>(i)], round * 100 + i);
    }
  }
}

TEST(ThreadPool, AThreadRunsOneBodyAtATime) {
  ThreadPool pool(6);
  std::vector<int> busy(6, 0);  // plain: indexed by thread, so never shared
  for (int round = 0; round < 200; ++round) {
    pool.run(64, [&](int64_t, int thread) {
      int& mine = busy[static_cast<size_t>(thread)];
      ASSERT_EQ(mine++, 0);
      --mine;
    });
  }
}

TEST(ThreadPool, RethrowsAndGoesOn) {
  ThreadPool pool(4);
  for (int round = 0; round < 100; ++round) {
    EXPECT_THROW(pool.run(1000,
                          [](int64_t i, int) {
                            if (i % 100 == 37) throw Error(Errc::device, "lost");
                          }),
                 Error);
    std::atomic<int> n{0};
    pool.run(1000, [&](int64_t, int) { ++n; });
    ASSERT_EQ(n.load(), 1000);
  }
  EXPECT_THROW(pool.run(1, [](int64_t, int) { throw std::runtime_error("one"); }), std::runtime_error);
}

TEST(ThreadPool, WakesSleepers) {
  ThreadPool pool(3, true);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // far beyond the spinning
    std::atomic<int> n{0};
    pool.run(10, [&](int64_t, int) { ++n; });
    ASSERT_EQ(n.load(), 10);
  }
}

TEST(ThreadPool, OversubscribedRoundsStayShort) {
  std::vector<std::jthread> crowd;
  std::atomic<int64_t> total{0};
  for (int i = 0; i < 4; ++i) {
    crowd.emplace_back([&] {
      ThreadPool pool(8);
      for (int round = 0; round < 500; ++round)
        pool.run(16, [&](int64_t, int) { total.fetch_add(1, std::memory_order_relaxed); });
    });
  }
  crowd.clear();
  EXPECT_EQ(total.load(), 4 * 500 * 16);
}

TEST(ThreadPool, RefusesSillySizes) {
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(ThreadPool(-3), Error);
  EXPECT_THROW(ThreadPool(kThreadsMax + 1), Error);
}

}  // namespace
}  // namespace assay::base
