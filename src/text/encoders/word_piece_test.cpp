// WordPiece against ids that a plain Python program of the same published rules gives (unicodedata's categories and
// decompositions, greedy longest match).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "assay/error.h"
#include "assay/tokenizer.h"
#include "text/facts.h"

namespace assay::text::word_piece_test {
namespace {

// As a GGUF file has them: what begins a word behind U+2581, what goes on inside of one plain.
constexpr const char* kTokens[] = {
    "[PAD]",  "[UNK]",  "[CLS]",  "[SEP]",     "[MASK]",   "▁the",    "▁un",   "aff", "able", "ed",  "▁play",
    "ing",    "s",      "▁.",     "▁,",        "▁!",       "▁'",      "▁cafe", "e",   "▁中",  "▁文", "▁a",
    "b",      "c",      "▁ab",    "▁istanbul", "▁strasse", "▁straße", "▁i",    "▁$",  "▁x",   "x",   "▁\u1112",
    "\u1161", "\u11ab", "▁naive", "▁σ",        "ος",       "▁don",    "▁t",    "▁-"};

VocabularyFacts facts(bool cased = false) {
  VocabularyFacts made;
  made.model = "bert";
  for (const char* token : kTokens) {
    made.tokens.push_back(token);
    made.kinds.push_back(made.tokens.size() <= 5 ? TokenKind::control : TokenKind::normal);
  }
  made.kinds[1] = TokenKind::unknown;
  if (cased) {
    made.tokens.push_back("▁The");
    made.kinds.push_back(TokenKind::normal);
  }
  return made;
}

std::vector<TokenId> ids_of(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, {false, false, false});
}

TEST(WordPiece, GivesTheIdsOfThePublishedRules) {
  const auto lower = make_tokenizer(facts()), cased = make_tokenizer(facts(true));
  struct Case {
    std::string text;
    std::vector<TokenId> lower, cased;
  };
  std::vector<TokenId> hundred(100, 31);
  hundred[0] = 30;
  const Case cases[] = {
      {"", {}, {}},
      {"the", {5}, {5}},
      {"The unaffable PLAYED.", {5, 6, 7, 8, 10, 9, 13}, {41, 6, 7, 8, 1, 13}},
      {"don't play, play!", {38, 16, 39, 10, 14, 10, 15}, {38, 16, 39, 10, 14, 10, 15}},
      {"Café CAFÉE", {17, 17, 18}, {1, 1}},
      {"中文abc", {19, 20, 24, 23}, {19, 20, 24, 23}},
      {"İstanbul", {25}, {1}},
      {"Straße straße", {27, 27}, {1, 27}},
      {std::string(100, 'x'), hundred, hundred},
      {std::string(101, 'x'), {1}, {1}},
      {"한 한국", {32, 33, 34, 1}, {1, 1}},
      {"  the\t\nplays \r ", {5, 10, 12}, {5, 10, 12}},
      {"naïve-a", {35, 40, 21}, {1, 40, 21}},
      {"ΣΟΣ σος", {1, 36, 37}, {1, 36, 37}},
      {std::string("a\u200bb the\0 \ufffdthe", 17), {24, 5, 5}, {24, 5, 5}},
      {"$x the中the", {29, 30, 5, 19, 5}, {29, 30, 5, 19, 5}},
      {"[CLS] the", {1, 1, 1, 5}, {1, 1, 1, 5}},
      {"ab abb abd", {24, 24, 22, 1}, {24, 24, 22, 1}},
      {"the \xff\xc3the", {5, 5}, {5, 5}},  // broken bytes are left out
      {"the \xe2\x82the", {5, 5}, {5, 5}},
      {"the \xed\xa0\x80the", {5, 5}, {5, 5}},
      {"the \xf4\x90\x80\x80the \xc0\x80", {5, 5}, {5, 5}},
      {"the the\xf0\x9f\x98", {5, 5}, {5, 5}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ids_of(*lower, c.text), c.lower) << c.text;
    EXPECT_EQ(ids_of(*cased, c.text), c.cased) << c.text << ", with capitals";
  }
}

TEST(WordPiece, PutsMarkersAroundATextAndParsesThemWhereAsked) {
  const auto tokenizer = make_tokenizer(facts());
  EXPECT_EQ(tokenizer->encode("the"), (std::vector<TokenId>{2, 5, 3}));
  EXPECT_EQ(tokenizer->encode("the[SEP]a", {true, false, false}), (std::vector<TokenId>{5, 3, 21}));
  VocabularyFacts plain = facts();
  plain.add_separator = false;
  EXPECT_EQ(make_tokenizer(plain)->encode("the"), (std::vector<TokenId>{2, 5}));
}

TEST(WordPiece, DecodesWordsAndTheirEnds) {
  const auto tokenizer = make_tokenizer(facts());
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{2, 6, 7, 8, 10, 9, 13, 3}), "unaffable played .");
}

TEST(WordPiece, RefusesAVocabularyWithoutAnUnknownToken) {
  VocabularyFacts made;
  made.model = "bert";
  made.tokens.push_back("▁the");
  EXPECT_THROW(make_tokenizer(made), Error);
}

}  // namespace
}  // namespace assay::text::word_piece_test
