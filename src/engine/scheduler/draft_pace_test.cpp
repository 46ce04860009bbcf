// When a request goes on guessing, and when it stops for a while.
#include "engine/scheduler/draft_pace.h"

#include <gtest/gtest.h>

namespace assay::engine {
namespace {

// Runs with guesses among n runs, of each of which this share is right.
int64_t n_with_guesses(DraftPace& pace, int n, double share, double cost_a_guess) {
  int64_t n_with = 0;
  for (int i = 0; i < n; ++i) {
    const int64_t guesses = pace.next(16);
    if (guesses == 0) continue;
    ++n_with;
    pace.add_cost(1 + cost_a_guess * static_cast<double>(guesses));
    pace.add(guesses, static_cast<int64_t>(share * static_cast<double>(guesses)));
  }
  return n_with;
}

TEST(DraftPace, GuessesMoreWhereAllAreRight) {
  DraftPace pace;
  EXPECT_EQ(pace.next(16), 0);  // tells what a run without guesses takes
  EXPECT_EQ(pace.next(16), 4);
  pace.add(4, 4);
  EXPECT_EQ(pace.next(16), 8);
  EXPECT_EQ(pace.next(3), 3);
  EXPECT_EQ(pace.next(0), 0);
  pace.add(8, 1);
  EXPECT_EQ(pace.next(16), 3);
}

TEST(DraftPace, StopsWhereItDoesNotPayAndTriesAgain) {
  DraftPace never;
  const int64_t n_of_bad = n_with_guesses(never, 1000, 0, 0.2);
  EXPECT_GE(n_of_bad, 8);  // tried again
  EXPECT_LE(n_of_bad, 60);
  DraftPace always;
  EXPECT_EQ(n_with_guesses(always, 1000, 1, 0.2), 999);
  DraftPace free_of_cost;  // a wrong guess that costs nothing does no harm
  EXPECT_EQ(n_with_guesses(free_of_cost, 1000, 0, 0), 999);
}

}  // namespace
}  // namespace assay::engine
