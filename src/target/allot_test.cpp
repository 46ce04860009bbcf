#include "target/allot.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/random_numbers.h"

namespace assay::target {
namespace {

uint64_t bytes_of(const std::vector<std::vector<Candidate>>& all, const std::vector<size_t>& chosen) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) bytes += all[i][chosen[i]].bytes;
  return bytes;
}
double cost_of(const std::vector<std::vector<Candidate>>& all, const std::vector<size_t>& chosen) {
  double cost = 0;
  for (size_t i = 0; i < all.size(); ++i) cost += all[i][chosen[i]].cost;
  return cost;
}

// The smallest cost of any choice within the bytes, by trying all.
double best_cost(const std::vector<std::vector<Candidate>>& all, uint64_t bytes_max) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<size_t> chosen(all.size(), 0);
  while (true) {
    if (bytes_of(all, chosen) <= bytes_max) best = std::min(best, cost_of(all, chosen));
    size_t i = 0;
    while (i < all.size() && ++chosen[i] == all[i].size()) chosen[i++] = 0;
    if (i == all.size()) return best;
  }
}

TEST(Allot, FitsAndNoSmallerFileCostsLess) {
  test::Random random(3);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::vector<Candidate>> all(5);
    for (std::vector<Candidate>& candidates : all) {
      for (int i = 0; i < 4; ++i) {
        candidates.push_back({static_cast<uint64_t>(50 + random.below(400)), static_cast<double>(random.below(1000))});
      }
    }
    const uint64_t limit = least_bytes(all) + static_cast<uint64_t>(random.below(800));
    const std::vector<size_t> chosen = allot(all, limit);
    EXPECT_LE(bytes_of(all, chosen), limit);
    // What is left over is less than a step, so that the choice beats any that fits a step below the limit.
    EXPECT_LE(cost_of(all, chosen), best_cost(all, limit >= 450 ? limit - 450 : 0));
  }
}

TEST(Allot, TakesTheStepThatSavesMostForAByte) {
  const std::vector<std::vector<Candidate>> all = {{{10, 100}, {20, 50}, {40, 0}}, {{10, 30}, {20, 5}}, {{10, 7}}};
  EXPECT_EQ(allot(all, 30), (std::vector<size_t>{0, 0, 0}));
  EXPECT_EQ(allot(all, 40), (std::vector<size_t>{1, 0, 0}));
  EXPECT_EQ(allot(all, 49), (std::vector<size_t>{1, 0, 0}));
  EXPECT_EQ(allot(all, 50), (std::vector<size_t>{1, 1, 0}));
  EXPECT_EQ(allot(all, 60), (std::vector<size_t>{2, 0, 0}));
  EXPECT_EQ(allot(all, 70), (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(least_bytes(all), 30u);
}

TEST(Allot, CandidatesThatCostMoreAndAreLargerAreNeverTaken) {
  const std::vector<std::vector<Candidate>> all = {{{30, 5}, {10, 4}, {20, 9}, {10, 6}}};
  EXPECT_EQ(allot(all, 1000), (std::vector<size_t>{1}));
}

}  // namespace
}  // namespace assay::target
