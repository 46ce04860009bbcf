// What an error message shows of a value: all of a short one, and of a long one no part of a character.
#include "json/shown.h"

#include <gtest/gtest.h>

namespace assay::json_text {
namespace {

std::string repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

TEST(Shown, ShortValuesAreWhole) {
  EXPECT_EQ(shown(5), "5");
  EXPECT_EQ(shown(1.5), "1.5");
  EXPECT_EQ(shown(1e300), "1e+300");
  EXPECT_EQ(shown(boost::json::value("a\"b")), R"("a\"b")");
  const std::string longest = "\"" + std::string(58, 'x') + "\"";
  EXPECT_EQ(shown(boost::json::value(std::string(58, 'x'))), longest);
}

TEST(Shown, LongOnesAreCutBetweenCharacters) {
  EXPECT_EQ(shown(boost::json::value(std::string(59, 'x'))), "\"" + std::string(56, 'x') + "...");
  // 57 bytes: the quote and 56 of the text.
  EXPECT_EQ(shown(boost::json::value(repeated("\xC3\xA9", 50))), "\"" + repeated("\xC3\xA9", 28) + "...");
  EXPECT_EQ(shown(boost::json::value(repeated("\xE6\x97\xA5", 50))), "\"" + repeated("\xE6\x97\xA5", 18) + "...");
  EXPECT_EQ(shown(boost::json::value(repeated("\xF0\x9F\x90\x9F", 50))),
            "\"" + repeated("\xF0\x9F\x90\x9F", 14) + "...");
  EXPECT_EQ(shown(boost::json::value("a" + repeated("\xF0\x9F\x90\x9F", 50))),
            "\"a" + repeated("\xF0\x9F\x90\x9F", 13) + "...");
}

}  // namespace
}  // namespace assay::json_text
