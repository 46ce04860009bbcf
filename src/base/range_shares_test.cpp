#include "base/range_shares.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/thread_pool.h"

namespace assay::base {
namespace {

using Range = RangeShares::Range;

TEST(RangeShares, AnOwnerGoesThroughItsPartInOrderAndThenTakesFromTheEndOfAnothers) {
  RangeShares shares(2);
  shares.reset(20);
  int64_t at = 10;
  for (const int64_t n : {5, 3, 1, 1}) {
    const Range range = shares.take(1);
    EXPECT_EQ(range.begin, at);
    EXPECT_EQ(range.end, at + n);
    at += n;
  }
  const Range first = shares.take(0), stolen = shares.take(1), second = shares.take(0);
  EXPECT_EQ(first.begin, 0);
  EXPECT_EQ(first.end, 5);
  EXPECT_EQ(stolen.begin, 7);
  EXPECT_EQ(stolen.end, 10);
  EXPECT_EQ(second.begin, 5);
  EXPECT_EQ(second.end, 6);
}

TEST(RangeShares, OneShareIsTakenWhole) {
  RangeShares shares(1);
  shares.reset(7);
  EXPECT_EQ(shares.take(0).end, 7);
  EXPECT_TRUE(shares.take(0).empty());
}

TEST(RangeShares, GiveEveryUnitOnce) {
  for (const int n_threads : {1, 2, 3, 5}) {
    ThreadPool pool(n_threads);
    RangeShares shares(n_threads);
    for (int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<int> taken(
            static_cast<size_t>(n));  // plain: a unit that two threads have is seen by the thread sanitizer
        shares.reset(n);
        pool.run(n_threads, [&](int64_t, int thread) {
          for (Range range = shares.take(thread); !range.empty(); range = shares.take(thread)) {
            for (int64_t i = range.begin; i < range.end; ++i) ++taken[static_cast<size_t>(i)];
          }
        });
        EXPECT_EQ(taken, std::vector<int>(static_cast<size_t>(n), 1));
      }
    }
  }
}

}  // namespace
}  // namespace assay::base
