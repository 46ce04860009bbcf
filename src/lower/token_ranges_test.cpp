// Ranges of tokens: no gap, and one range where a choice goes on.
#include "lower/token_ranges.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace assay::lower {
namespace {

struct Row {
  std::string name;
};
struct Choice : RowRanges<Row> {
  using TokenRanges::add;
};

TEST(TokenRanges, GoOnWhileTheChoiceIsTheSame) {
  const Row a{"a"}, b{"b"};
  Choice choice;
  for (const auto& [begin, row] :
       {std::pair{1, &a}, std::pair{2, &a}, std::pair{5, &b}, std::pair{5, &b}, std::pair{9, &a}})
    choice.add({begin, kAnyTokens, row});
  ASSERT_EQ(choice.ranges().size(), 3u);
  int64_t next = 1;
  for (const RowRange<Row>& range : choice.ranges()) {
    EXPECT_EQ(range.tokens_min, next);
    next = range.tokens_max + 1;
  }
  EXPECT_EQ(choice.ranges().back().tokens_max, kAnyTokens);
  std::string names;
  for (int64_t n = 1; n <= 10; ++n) names += choice.at(n).name;
  EXPECT_EQ(names, "aaaabbbbaa");
  EXPECT_EQ(choice.at(kAnyTokens).name, "a");
}

}  // namespace
}  // namespace assay::lower
