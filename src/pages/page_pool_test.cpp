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

TEST(PagePool, AnyOrderOfTakingSharingAndLeaving) {
  test::Random random(5);
  PagePool pool(100);
  std::vector<int> users(100);
  for (int i = 0; i < 20'000; ++i) {
    const auto page = static_cast<size_t>(random.below(100));
    const int what = random.below(3);
    if (what == 0 && pool.n_free() > 0) {
      const auto lowest = std::find(users.begin(), users.end(), 0) - users.begin();
      ASSERT_EQ(pool.take(), lowest);
      users[static_cast<size_t>(lowest)] = 1;
    } else if (what == 1 && users[page] > 0) {
      pool.share(static_cast<int32_t>(page));
      ++users[page];
    } else if (what == 2 && users[page] > 0) {
      pool.leave(static_cast<int32_t>(page));
      --users[page];
    }
    ASSERT_EQ(pool.n_free(), std::count(users.begin(), users.end(), 0));
    ASSERT_EQ(pool.is_shared(static_cast<int32_t>(page)), users[page] > 1);
  }
}

}  // namespace
}  // namespace assay::pages
