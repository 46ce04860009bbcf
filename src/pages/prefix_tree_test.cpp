// The tree against a plain list of sequences, whatever is added, dropped and removed.
#include "pages/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "support/random_numbers.h"

namespace assay::pages {
namespace {

using Tokens = std::vector<TokenId>;

Tokens run(TokenId first, int n) {
  Tokens tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(first + i);
  return tokens;
}

TEST(PrefixTree, FindsTheLongestBeginning) {
  PrefixTree tree;
  EXPECT_EQ(tree.find("", run(0, 5)).n, 0);
  EXPECT_FALSE(tree.add("", run(0, 150), 1).is_covered);
  Tokens other = run(0, 150);
  other[100] = 7;
  tree.add("", other, 2);
  EXPECT_EQ(tree.find("", run(0, 400)).n, 150);
  EXPECT_EQ(tree.find("", run(0, 400)).sequence, 1);
  EXPECT_EQ(tree.find("", other).sequence, 2);
  EXPECT_EQ(tree.find("", run(0, 70)).n, 70);
  EXPECT_EQ(tree.find("another", run(0, 70)).n, 0);
  EXPECT_EQ(tree.find("", run(1, 70)).n, 0);
}

TEST(PrefixTree, ALongerOneReplacesAndAShorterOneIsCovered) {
  PrefixTree tree;
  for (const int n : {10, 64, 100, 128}) {
    tree.add("", run(0, n), 1);
    EXPECT_TRUE(tree.add("", run(0, n), 2).is_covered);
    EXPECT_TRUE(tree.add("", run(0, n - 3), 2).is_covered);
    const PrefixTree::Added added = tree.add("", run(0, n + 1), 2);
    EXPECT_FALSE(added.is_covered);
    EXPECT_EQ(added.replaced, 1);
    EXPECT_FALSE(tree.holds(1));
    EXPECT_EQ(tree.find("", run(0, 300)).n, n + 1);
    tree.remove(2);
    EXPECT_EQ(tree.size(), 0u);
  }
}

TEST(PrefixTree, DropsPagesFromTheEndOfTheOldest) {
  PrefixTree tree;
  tree.add("a", run(0, 150), 1);
  tree.add("b", run(500, 64), 2);
  EXPECT_EQ(tree.oldest(), 1);
  tree.find("a", run(0, 3));
  EXPECT_EQ(tree.oldest(), 2);
  EXPECT_EQ(tree.drop_page(2), 0);
  EXPECT_EQ(tree.drop_page(1), 128);
  EXPECT_EQ(tree.find("a", run(0, 150)).n, 128);
  EXPECT_EQ(tree.drop_page(1), 64);
  EXPECT_EQ(tree.drop_page(1), 0);
  EXPECT_EQ(tree.oldest(), std::nullopt);
}

TEST(PrefixTree, AnyOrderAgainstAList) {
  test::Random random(11);
  for (int round = 0; round < 30; ++round) {
    PrefixTree tree;
    std::map<int, Tokens> held;
    for (int i = 0; i < 300; ++i) {
      Tokens tokens;  // of few kinds, so that many begin alike
      const int n = 1 + random.below(200);
      for (int t = 0; t < n; ++t) tokens.push_back(t % 60 == 59 ? random.below(2) : 0);
      const auto n_common = [&](const Tokens& other) {
        return std::mismatch(other.begin(), other.end(), tokens.begin(), tokens.end()).first - other.begin();
      };
      int64_t longest = 0;
      for (const auto& [sequence, other] : held) longest = std::max<int64_t>(longest, n_common(other));
      const PrefixTree::Hit hit = tree.find("", tokens);
      ASSERT_EQ(hit.n, longest);
      if (hit.n > 0) {
        ASSERT_EQ(n_common(held.at(hit.sequence)), longest);
      }
      if (random.below(3) == 0 && !held.empty()) {
        const int oldest = *tree.oldest();
        const int64_t left = tree.drop_page(oldest);
        held[oldest].resize(static_cast<size_t>(left));
        if (left == 0) held.erase(oldest);
        continue;
      }
      const bool covered = longest == n;
      const PrefixTree::Added added = tree.add("", tokens, i);
      ASSERT_EQ(added.is_covered, covered);
      if (added.replaced) {
        ASSERT_EQ(n_common(held.at(*added.replaced)), static_cast<int64_t>(held.at(*added.replaced).size()));
        held.erase(*added.replaced);
      }
      if (!covered) held[i] = tokens;
      ASSERT_EQ(tree.size(), held.size());
      for (const auto& [sequence, other] : held) ASSERT_EQ(tree.n_tokens(sequence), static_cast<int64_t>(other.size()));
    }
  }
}

}  // namespace
}  // namespace assay::pages
