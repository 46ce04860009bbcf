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

TEST(Printable, LeavesNoControlCharacter) {
  EXPECT_EQ(printable("plain caf\u00E9 \u65E5"), "plain caf\u00E9 \u65E5");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable("\x1b[31m\x7f\u009b\x07"), "\\x1b[31m\\x7f\\x9b\\x07");
  EXPECT_EQ(printable(std::string("\0x", 2)), "\\x00x");
  EXPECT_EQ(printable("a\xE2\x82z\x9b"), "a<0xE2><0x82>z<0x9B>");
  EXPECT_EQ(printable("\u00A0"), "\u00A0");  // the first character behind C1
  EXPECT_EQ(printable_lines("a\nb\tc\x1b"), "a\nb\tc\\x1b");
  EXPECT_EQ(quoted_text("say \"\\\n\xff\""), "\"say \\\"\\\\\\n<0xFF>\\\"\"");
  EXPECT_EQ(quoted_text(""), "\"\"");
}

TEST(Printable, JsonKeepsItsTextWithoutControls) {
  EXPECT_EQ(json_without_controls("{\"a\": \"\u00E9\"}"), "{\"a\": \"\u00E9\"}");
  EXPECT_EQ(json_without_controls("[\"x\x7f\u009b\u0080\"]"), "[\"x\\u007f\\u009b\\u0080\"]");
  EXPECT_EQ(json_without_controls("\"\u00A0\""), "\"\u00A0\"");
}

}  // namespace
}  // namespace assay
