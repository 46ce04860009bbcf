// UTF-8 at the edge: what is well-formed and what is not.
#include "assay/utf8.h"

#include <gtest/gtest.h>

#include "assay/error.h"

namespace assay {
namespace {

TEST(Utf8, AcceptsWellFormedText) {
  for (const char* text : {"", "plain", "caf\u00E9", "\u65E5\u672C", "\U0001F600",
                           "\u07FF\u0800\uFFFF\U00010000\U0010FFFF", "\uD7FF\uE000"}) {
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt) << text;
  }
}

TEST(Utf8, FindsTheFirstBadByte) {
  EXPECT_EQ(find_invalid_utf8("ab\xFF"), 2u);
  EXPECT_EQ(find_invalid_utf8("\x80"), 0u);
  EXPECT_EQ(find_invalid_utf8("\xC0\x80"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("\xE0\x9F\xBF"), 0u);      // overlong
  EXPECT_EQ(find_invalid_utf8("\xF0\x8F\xBF\xBF"), 0u);  // overlong
  EXPECT_EQ(find_invalid_utf8("x\xED\xA0\x80"), 1u);     // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("a\xE2\x82"), 1u);         // cut
  EXPECT_EQ(find_invalid_utf8("a\xF0\x9F\x98"), 1u);
  EXPECT_EQ(find_invalid_utf8("\xC3("), 0u);
  EXPECT_THROW(require_utf8("\xFF", "the prompt"), Error);
}

}  // namespace
}  // namespace assay
