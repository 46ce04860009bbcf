// Pages taken, shared and given back against a plain list of counts.
#include "pages/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/random_numbers.h"

namespace assay::pages {
namespace {

TEST(PagePool, GivesTheLowestFreePage) {
  PagePool pool(130);
  EXPECT_EQ(pool.n_free(), 130);
  for (int32_t i = 0; i < 130; ++i) EXPECT_EQ(pool.take(), i);
  EXPECT_EQ(pool.n_free(), 0);
  for (const int32_t page : {128, 3, 64}) pool.leave(page);
  for (const int32_t page : {3, 64, 128}) EXPECT_EQ(pool.take(), page);
}

TEST(PagePool, APinnedPageIsFreeButGivenToNobody) {
  PagePool pool(3);
  for (int i = 0; i < 2; ++i) pool.take();
  pool.pin(0);
  pool.pin(0);
  pool.pin(2);  // one that is free already
  pool.leave(0);
  pool.leave(1);
  EXPECT_EQ(pool.n_free(), 3);
  EXPECT_EQ(pool.n_ready(), 1);
  EXPECT_EQ(pool.take(), 1);
  pool.unpin(0);
  EXPECT_TRUE(pool.is_pinned(0));
  EXPECT_EQ(pool.n_ready(), 0);
  pool.unpin(0);
  EXPECT_EQ(pool.take(), 0);
  pool.unpin(2);
  EXPECT_EQ(pool.take(), 2);
  pool.pin(2);  // in use: unpinned later, nothing is free
  pool.unpin(2);
  EXPECT_EQ(pool.n_free(), 0);
}

TEST(PagePool, AnyOrderOfTakingSharingPinningAndLeaving) {
  test::Random random(5);
  PagePool pool(100);
  std::vector<int> users(100), pins(100);
  const auto n_ready = [&] {
    int64_t n = 0;
    for (size_t i = 0; i < users.size(); ++i) n += users[i] == 0 && pins[i] == 0 ? 1 : 0;
    return n;
  };
  for (int i = 0; i < 20'000; ++i) {
    const auto page = static_cast<size_t>(random.below(100));
    const int what = random.below(5);
    if (what == 0 && pool.n_ready() > 0) {
      size_t lowest = 0;
      while (users[lowest] > 0 || pins[lowest] > 0) ++lowest;
      ASSERT_EQ(pool.take(), static_cast<int32_t>(lowest));
      users[lowest] = 1;
    } else if (what == 1 && users[page] > 0) {
      pool.share(static_cast<int32_t>(page));
      ++users[page];
    } else if (what == 2 && users[page] > 0) {
      pool.leave(static_cast<int32_t>(page));
      --users[page];
    } else if (what == 3 && pins[page] < 3) {
      pool.pin(static_cast<int32_t>(page));
      ++pins[page];
    } else if (what == 4 && pins[page] > 0) {
      pool.unpin(static_cast<int32_t>(page));
      --pins[page];
    }
    ASSERT_EQ(pool.n_free(), std::count(users.begin(), users.end(), 0));
    ASSERT_EQ(pool.n_ready(), n_ready());
    ASSERT_EQ(pool.is_shared(static_cast<int32_t>(page)), users[page] > 1);
  }
}

}  // namespace
}  // namespace assay::pages
