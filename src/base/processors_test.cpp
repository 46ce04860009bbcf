#include "base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>

namespace assay::base {
namespace {

TEST(Processors, AreThoseOfTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const auto allowed = allowed_processors();
  const std::set<int> distinct(allowed.begin(), allowed.end());
  EXPECT_EQ(distinct.size(), allowed.size());
  EXPECT_EQ(distinct.size(), static_cast<size_t>(CPU_COUNT(&before)));
  EXPECT_GE(physical_cores(), 1);
  EXPECT_LE(physical_cores(), static_cast<int>(allowed.size()));

  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(allowed.back(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(allowed_processors(), std::vector<int>{allowed.back()});
  EXPECT_EQ(physical_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace assay::base
