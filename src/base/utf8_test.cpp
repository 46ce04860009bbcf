// UTF-8 at its borders.
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <iterator>
#include <string>

namespace assay::base {
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
  for (const char* text : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xF5\x80\x80\x80", "\xFE", "\xFF"}) {
    EXPECT_EQ(at(text).state, CharState::broken);
    EXPECT_EQ(at(text).length, 1);
  }
  for (const char* text : {"\xE0\x9F\x80", "\xED\xA0\x80", "\xF0\x8F\x80\x80", "\xF4\x90\x80\x80", "\xC3(", "\xE2("}) {
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

// The rule for many places at once against the reading of one character after the other.
TEST(Utf8, WholeTextsAreThoseWhoseCharactersAreWhole) {
  const auto is_whole = [](std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const Char c = char_at(text, at);
      if (c.state != CharState::whole) return false;
      at += static_cast<size_t>(c.length);
    }
    return true;
  };
  constexpr uint8_t kEdges[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF,
                                0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  constexpr size_t n = std::size(kEdges);
  for (size_t code = 0; code < n * n * n * n; ++code) {  // every four of the bytes at which the table changes
    std::string four;
    for (size_t i = 0, left = code; i < 4; ++i, left /= n) four += static_cast<char>(kEdges[left % n]);
    ASSERT_EQ(is_utf8(four), is_whole(four)) << code;
    const std::string inside = "\xF0\x9F\x98\x80" + four + "z";
    ASSERT_EQ(is_utf8(inside), is_whole(inside)) << code;
  }
  const std::string smile = "\xF0\x9F\x98\x80";
  for (size_t before = 4080; before < 4110; ++before) {  // across the borders of blocks
    std::string text = std::string(before, 'a') + smile + std::string(5000, 'b');
    EXPECT_TRUE(is_utf8(text)) << before;
    text[before + 3] = 'x';
    EXPECT_FALSE(is_utf8(text)) << before;
    EXPECT_FALSE(is_utf8(std::string(before, 'a') + smile.substr(0, 3))) << before;
    EXPECT_FALSE(is_utf8(std::string(before, 'a') + "\x80")) << before;
  }
}

}  // namespace
}  // namespace assay::base
