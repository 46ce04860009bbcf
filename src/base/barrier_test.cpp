// Threads that meet: each sees what the others did before, round by round; and a barrier that is called off lets
// everybody go.
#include "base/barrier.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace assay::base {
namespace {

TEST(Barrier, EveryRoundSeesWhatAllDidBefore) {
  constexpr int kThreads = 4, kRounds = 500;
  Barrier barrier(kThreads);
  std::vector<int> done(kThreads, 0);  // plain: the barrier orders them
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 1; round <= kRounds; ++round) {
        done[t] = round;
        if (!barrier.wait()) ++wrong[t];
        for (const int other : done) wrong[t] += other != round;
        if (!barrier.wait()) ++wrong[t];
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

TEST(Barrier, CallingItOffLetsThoseGoWhoWaitAndThoseWhoCome) {
  Barrier barrier(3);
  std::vector<int> came_through(2, -1);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 2; ++t) threads.emplace_back([&, t] { came_through[t] = barrier.wait() ? 1 : 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    barrier.call_off();
  }
  EXPECT_EQ(came_through, (std::vector<int>{0, 0}));
  EXPECT_FALSE(barrier.wait());
  barrier.reopen();
  std::jthread a([&] { EXPECT_TRUE(barrier.wait()); }), b([&] { EXPECT_TRUE(barrier.wait()); });
  EXPECT_TRUE(barrier.wait());
}

}  // namespace
}  // namespace assay::base
