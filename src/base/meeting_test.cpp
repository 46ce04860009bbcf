// Threads that meet: each sees what the others did before, round by round; and a meeting that is called off lets everybody go.
#include "base/meeting.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace assay::base {
namespace {

TEST(Meeting, EveryRoundSeesWhatAllDidBefore) {
  constexpr int kThreads = 4, kRounds = 500;
  Meeting meeting(kThreads);
  std::vector<int> done(kThreads, 0);  // plain: the meeting orders them
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 1; round <= kRounds; ++round) {
        done[t] = round;
        if (!meeting.wait()) ++wrong[t];
        for (const int other : done) wrong[t] += other != round;
        if (!meeting.wait()) ++wrong[t];
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

TEST(Meeting, CallingItOffLetsThoseGoWhoWaitAndThoseWhoCome) {
  Meeting meeting(3);
  std::vector<int> came_through(2, -1);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 2; ++t) threads.emplace_back([&, t] { came_through[t] = meeting.wait() ? 1 : 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    meeting.call_off();
  }
  EXPECT_EQ(came_through, (std::vector<int>{0, 0}));
  EXPECT_FALSE(meeting.wait());
  meeting.reopen();
  std::jthread a([&] { EXPECT_TRUE(meeting.wait()); }), b([&] { EXPECT_TRUE(meeting.wait()); });
  EXPECT_TRUE(meeting.wait());
}

}  // namespace
}  // namespace assay::base
