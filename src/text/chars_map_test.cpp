// Rules of normalisation: what they say, and bytes that are none.
#include "text/chars_map.h"

#include <gtest/gtest.h>

#include <functional>

#include "assay/error.h"
#include "support/unigram_facts.h"

namespace assay::text {
namespace {

using test::CharsMapBuilder;

std::string problem(const std::vector<std::byte>& bytes) {
  try {
    const CharsMap map{bytes};
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_file);
    return error.what();
  }
  return "none";
}

CharsMapBuilder some() {
  CharsMapBuilder rules;
  rules.add("a", "A").add("ab", "").add("abcd", "four").add("\xC3\xA9", "e");
  return rules;
}

TEST(CharsMap, TheLongestRunCounts) {
  const CharsMap map(some().bytes());
  const auto found = [&](std::string_view text) {
    const CharsMap::Match match = map.longest(text);
    return std::pair(match.bytes, std::string(match.text));
  };
  EXPECT_EQ(found("ax"), std::pair(size_t{1}, std::string("A")));
  EXPECT_EQ(found("abcx"), std::pair(size_t{2}, std::string()));
  EXPECT_EQ(found("abcde"), std::pair(size_t{4}, std::string("four")));
  EXPECT_EQ(found("\xC3\xA9"), std::pair(size_t{2}, std::string("e")));
  for (const std::string_view none : {std::string_view("x"), std::string_view("b"), std::string_view("\xC3"),
                                      std::string_view(""), std::string_view("\0a", 2)}) {
    EXPECT_EQ(map.longest(none).bytes, 0u);
  }
  EXPECT_EQ(CharsMap().longest("a").bytes, 0u);
  EXPECT_EQ(CharsMap(std::span<const std::byte>{}).longest("a").bytes, 0u);
}

TEST(CharsMap, ReadsWhatSentencePieceCompiled) {
  test::for_each_unigram_vocabulary([](const test::UnigramVocabulary& one) {
    const CharsMap map(one.rules);
    EXPECT_EQ(map.longest("\xEF\xAC\x81").text, "fi");      // U+FB01
    EXPECT_EQ(map.longest("e\xCC\x81x").text, "\xC3\xA9");  // e and U+0301
    EXPECT_EQ(map.longest("\t\t").text, " ");
    EXPECT_EQ(map.longest("\x7F").bytes, 1u);
    EXPECT_EQ(map.longest("\x7F").text, "");
    EXPECT_EQ(map.longest("e").bytes, 0u);
  });
}

TEST(CharsMap, BytesThatAreNoRules) {
  const std::vector<std::byte> good = some().bytes();
  ASSERT_EQ(problem(good), "none");
  for (size_t n = 1; n < good.size(); ++n) {
    ASSERT_NE(problem({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)}), "none") << n;
  }
  EXPECT_NE(problem(std::vector<std::byte>(CharsMap::kBytesMax + 1)).find("the limit is"), std::string::npos);
  CharsMapBuilder many = some();
  many.units().resize(CharsMap::kUnitsMax + 1);
  EXPECT_NE(problem(many.bytes()).find("the limit is"), std::string::npos);
  for (const uint32_t n : {0u, 3u, 0xFFFFFFFFu, 0x7FFFFFFCu}) {
    std::vector<std::byte> bytes = good;
    std::memcpy(bytes.data(), &n, sizeof n);
    EXPECT_NE(problem(bytes).find("needs whole units"), std::string::npos) << n;
  }
}

TEST(CharsMap, PathsThatLeaveTheArrayOrRunInCircles) {
  const auto changed = [](const std::function<void(CharsMapBuilder&)>& change) {
    CharsMapBuilder rules = some();
    rules.add("zz", "text");
    change(rules);
    return problem(rules.bytes());
  };
  EXPECT_NE(changed([](auto& r) { r.lead_last_to(256); }).find("in a circle"), std::string::npos);
  EXPECT_NE(changed([](auto& r) { r.lead_last_to(0x1FFFFF); }).find("the array has"), std::string::npos);
  EXPECT_NE(changed([](auto& r) { r.texts().back() = 'x'; }).find("no end"), std::string::npos);
  EXPECT_NE(changed([](auto& r) { r.texts().front() = '\xFF'; }).find("not UTF-8"), std::string::npos);
  EXPECT_NE(changed([](auto& r) { r.texts().clear(); }).find("where none begins"), std::string::npos);
  EXPECT_NE(changed([](auto& r) { r.texts().replace(1, 2, "\xC3\xA9"); }).find("where none begins"), std::string::npos);
  // Without an end of its own the last unit may lead anywhere: back to the root is a circle.
  EXPECT_NE(changed([](auto& r) { r.units()[r.last()] &= ~0x100u, r.lead_last_to(256); }).find("in a circle"),
            std::string::npos);
  EXPECT_EQ(changed([](auto& r) { r.units()[r.last()] &= ~0x100u, r.lead_last_to(0x1FFFFF); }),
            "none");  // leads nowhere
}

TEST(CharsMap, RunsAreOfBoundedLength) {
  CharsMapBuilder rules;
  rules.add(std::string(CharsMap::kRunBytesMax, 'x'), "y");
  const CharsMap map(rules.bytes());
  EXPECT_EQ(map.longest(std::string(2000, 'x')).bytes, CharsMap::kRunBytesMax);
  rules.add(std::string(CharsMap::kRunBytesMax + 1, 'x'), "z");
  EXPECT_NE(problem(rules.bytes()).find("more than 1024 bytes"), std::string::npos);
}

// Every unit of SentencePiece's own rules, changed in each bit: an error, or rules that can be asked anything.
TEST(CharsMap, ChangedBitsAreAnErrorOrHarmless) {
  const std::vector<std::byte> good = some().bytes();
  for (size_t bit = 0; bit < 8 * good.size(); bit += 7) {
    std::vector<std::byte> bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    try {
      const CharsMap map(bytes);
      for (const char* text : {"a", "ab", "abcd", "\xC3\xA9", "zzzz"}) {
        ASSERT_LE(map.longest(text).bytes, std::strlen(text));
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code, Errc::bad_file);
    }
  }
}

}  // namespace
}  // namespace assay::text
