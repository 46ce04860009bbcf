// UTF-8 at its borders.
#include "text/utf8.h"

#include <gtest/gtest.h>

namespace assay::text {
namespace {

TEST(Utf8, EveryCodePointThereAndBack) {
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    std::string text;
    append_utf8(text, code);
    const Char c = char_at(text, 0);
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    ASSERT_EQ(c.state, surrogate ? CharState::broken : CharState::whole) << code;
    if (surrogate) continue;
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(static_cast<size_t>(c.length), text.size());
  }
}

TEST(Utf8, BrokenAndCutShort) {
  const auto at = [](std::string_view text) { return char_at(text, 0); };
  for (const char* text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xF5\x80\x80\x80", "\xFE", "\xFF"}) {
    EXPECT_EQ(at(text).state, CharState::broken);
    EXPECT_EQ(at(text).length, 1);
  }
  for (const char* text :
       {"\xE0\x9F\x80", "\xED\xA0\x80", "\xF0\x8F\x80\x80", "\xF4\x90\x80\x80", "\xC3(", "\xE2("}) {
    EXPECT_EQ(at(text).state, CharState::broken);
    EXPECT_EQ(at(text).length, 1);
  }
  EXPECT_EQ(at("\xE2\x82(").length, 2);
  EXPECT_EQ(at("\xF0\x9F\x98(").length, 3);
  for (const char* text : {"\xC3", "\xE2", "\xE2\x82", "\xF0", "\xF0\x9F", "\xF0\x9F\x98"}) {
    EXPECT_EQ(at(text).state, CharState::cut_short);
    EXPECT_EQ(at(text).length, static_cast<int>(std::string_view(text).size()));
  }
}

TEST(Utf8, WholeTexts) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("plain ASCII, longer than eight bytes"));
  EXPECT_TRUE(is_utf8("12345678é"));
  EXPECT_FALSE(is_utf8("12345678\xC3"));
  EXPECT_FALSE(
      is_utf8("1234\xFF"
              "5678"));
  EXPECT_EQ(repaired_utf8("a\xE2\x82z"), "a\uFFFD\uFFFDz");
  EXPECT_EQ(repaired_utf8("é"), "é");
}

}  // namespace
}  // namespace assay::text
