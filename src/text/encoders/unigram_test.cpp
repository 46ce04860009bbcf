// Unigram vocabularies against SentencePiece and Hugging Face's tokenizers (tests/data/make_unigram_data.py), ties,
// unknown characters, blanks, and files that cannot be.
#include <gtest/gtest.h>

#include <limits>

#include "assay/error.h"
#include "assay/tokenizer.h"
#include "support/unigram_facts.h"
#include "text/facts.h"

namespace assay::text::unigram_test {
namespace {

constexpr EncodeOptions kPlain{false, false, false};

TEST(Unigram, GivesTheIdsOfItsTwoJudges) {
  int n_texts = 0;
  test::for_each_unigram_vocabulary([&](const test::UnigramVocabulary& one) {
    const auto tokenizer = make_tokenizer(one.facts);
    for (const auto& entry : one.cases) {
      const std::string text = test::text_of(test::from_hex(test::text(entry.at(0))));
      std::vector<TokenId> expected;
      for (const auto& id : entry.at(1).as_array()) expected.push_back(id.to_number<TokenId>());
      EXPECT_EQ(tokenizer->encode(text, kPlain), expected) << one.name << ": " << ::testing::PrintToString(text);
      ++n_texts;
    }
  });
  EXPECT_GE(n_texts, 1500);
}

// Pieces of one letter each, and those that a test adds.
VocabularyFacts letters(std::initializer_list<std::pair<const char*, float>> more = {}) {
  VocabularyFacts facts;
  facts.model = "t5";
  const auto add = [&](std::string_view text, float score, TokenKind kind = TokenKind::normal) {
    facts.tokens.push_back(text);
    facts.scores.push_back(score);
    facts.kinds.push_back(kind);
  };
  add("<unk>", 0, TokenKind::unknown);
  add("<s>", 0, TokenKind::control);
  add("</s>", 0, TokenKind::control);
  for (const char* letter : {"▁", "a", "b", "c"}) add(letter, -4);
  for (const auto& [text, score] : more) add(text, score);
  return facts;
}

std::string spelled(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = kPlain) {
  std::string all;
  for (const TokenId id : tokenizer.encode(text, options))
    all += (all.empty() ? "" : " ") + std::string(tokenizer.text(id));
  return all;
}
std::string spelled(const VocabularyFacts& facts, std::string_view text) {
  return spelled(*make_tokenizer(facts), text);
}

TEST(Unigram, TakesTheHighestSum) {
  EXPECT_EQ(spelled(letters({{"ab", -7.5f}}), "abc"), "▁ ab c");
  EXPECT_EQ(spelled(letters({{"ab", -8.5f}}), "abc"), "▁ a b c");
  EXPECT_EQ(spelled(letters({{"ab", -5}, {"bc", -3}}), "abc"), "▁ a bc");
  EXPECT_EQ(spelled(letters({{"▁a", -6}, {"a▁", -1}}), "a a"), "▁ a▁ a") << "tokens may cross blanks";
}

// As in both judges: at each place the way that was found first, going through the text from its beginning.
TEST(Unigram, OfEqualSumsTheLastTokenBeginsFirst) {
  EXPECT_EQ(spelled(letters({{"ab", -8}}), "ab"), "▁ ab");
  EXPECT_EQ(spelled(letters({{"ab", -5}, {"bc", -5}}), "abc"), "▁ a bc");
  EXPECT_EQ(spelled(letters({{"aa", -4}}), "aaa"), "▁ a aa");
}

TEST(Unigram, UnknownCharactersAreOneTokenARun) {
  EXPECT_EQ(spelled(letters(), "axyzb"), "▁ a <unk> b");
  EXPECT_EQ(spelled(letters(), "x y"), "▁ <unk> ▁ <unk>");
  EXPECT_EQ(spelled(letters({{"xy", -13}}), "axyb"), "▁ a xy b") << "two unknown ones cost 28 and more";
  EXPECT_EQ(spelled(letters({{"xy", -60}}), "xy"), "▁ xy") << "the unknown costs the least score less 10";
  EXPECT_EQ(spelled(letters(), "\xFF\xC3"), "▁ <unk>");
  EXPECT_EQ(spelled(letters({{"\uFFFD", -1}}), "\xFF\xC3\xE2\x96"), "▁ \uFFFD \uFFFD \uFFFD \uFFFD")
      << "one for each byte";
}

TEST(Unigram, FallsBackOnBytesWhereAllOfACharacterHaveTokens) {
  VocabularyFacts facts = letters();
  for (const char* byte : {"<0xC3>", "<0xA9>"}) {
    facts.tokens.push_back(byte);
    facts.scores.push_back(0);
    facts.kinds.push_back(TokenKind::byte);
  }
  const auto tokenizer = make_tokenizer(facts);
  EXPECT_EQ(spelled(*tokenizer, "aéé"), "▁ a <0xC3> <0xA9> <0xC3> <0xA9>");
  EXPECT_EQ(spelled(*tokenizer, "aéö"), "▁ a <0xC3> <0xA9> <unk>");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("aé b", kPlain)), "aé b");
  EXPECT_EQ(spelled(*tokenizer, "<0xC3>"), "▁ <unk>") << "a byte token is no text";
}

TEST(Unigram, BlanksAndMarkers) {
  VocabularyFacts facts = letters({{"▁a", -3}});
  EXPECT_EQ(spelled(facts, " a  a "), "▁ ▁a ▁ ▁a ▁");
  facts.remove_extra_whitespaces = true;
  EXPECT_EQ(spelled(facts, " a  a "), "▁a ▁a");
  EXPECT_EQ(spelled(facts, "   "), "");
  facts.add_space_prefix = false;
  EXPECT_EQ(spelled(facts, "a a"), "a ▁a");
  facts.add_space_prefix = true;
  const auto tokenizer = make_tokenizer(facts);
  EXPECT_EQ(spelled(*tokenizer, "a", {}), "▁a </s>") << "a text ends with </s>, unless the file says otherwise";
  EXPECT_EQ(spelled(*tokenizer, "a</s>a", {true, std::nullopt, std::nullopt}), "▁a </s> ▁a </s>");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a a")), "a a");
  facts.special.bos = 1;
  facts.add_bos = true;
  facts.add_eos = false;
  EXPECT_EQ(spelled(*make_tokenizer(facts), "a", {}), "<s> ▁a");
}

TEST(Unigram, UserDefinedTokensAreTakenFromTheTextItself) {
  test::CharsMapBuilder rules;
  rules.add("A", "a").add("b", "ab");
  const std::vector<std::byte> bytes = rules.bytes();
  VocabularyFacts facts = letters();
  facts.chars_map = bytes;
  EXPECT_EQ(spelled(facts, "Ab"), "▁ a a b");
  facts.tokens.push_back("A");
  facts.scores.push_back(0);
  facts.kinds.push_back(TokenKind::user_defined);
  EXPECT_EQ(spelled(facts, "cAb"), "▁ c A ▁ a b");
}

TEST(Unigram, UnusedAndControlTokensAreNeverText) {
  VocabularyFacts facts = letters({{"ab", -1}});
  facts.kinds.back() = TokenKind::unused;
  EXPECT_EQ(spelled(facts, "ab"), "▁ a b");
  facts.kinds.back() = TokenKind::control;
  EXPECT_EQ(spelled(facts, "ab"), "▁ a b");
}

void expect_refused(VocabularyFacts facts, const std::string& part) {
  try {
    make_tokenizer(std::move(facts));
    FAIL() << "no error; wanted one about " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_file);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Unigram, VocabulariesThatCannotBe) {
  VocabularyFacts no_scores = letters();
  no_scores.scores.clear();
  expect_refused(no_scores, "tokenizer.ggml.scores is missing");
  VocabularyFacts no_unknown = letters();
  no_unknown.kinds[0] = TokenKind::normal;
  expect_refused(no_unknown, "tokenizer.ggml.unknown_token_id");
  for (const float score : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    VocabularyFacts bad = letters();
    bad.scores[4] = score;
    expect_refused(bad, "tokenizer.ggml.scores: entry 4");
  }
  VocabularyFacts empty;
  empty.model = "t5";
  expect_refused(empty, "the vocabulary is empty");
  VocabularyFacts bytes = letters({{"0x41", 0}});
  bytes.kinds.back() = TokenKind::byte;
  expect_refused(bytes, "0x41");
  VocabularyFacts rules = letters();
  const std::vector<std::byte> three(3);
  rules.chars_map = three;
  expect_refused(rules, "tokenizer.ggml.precompiled_charsmap");
  VocabularyFacts no_eos = letters();
  no_eos.add_bos = true;
  expect_refused(no_eos, "BOS");
}

TEST(Unigram, AVocabularyOfMarkersAloneKnowsNothing) {
  VocabularyFacts facts;
  facts.model = "t5";
  facts.tokens = {"<unk>"};
  facts.scores = {0};
  facts.kinds = {TokenKind::unknown};
  EXPECT_EQ(spelled(facts, "abc"), "<unk>");
}

TEST(Unigram, ATextThatGrowsTooMuchIsRefused) {
  test::CharsMapBuilder rules;
  rules.add("a", std::string(1 << 20, 'x'));
  const std::vector<std::byte> bytes = rules.bytes();
  VocabularyFacts facts = letters();
  facts.chars_map = bytes;
  try {
    make_tokenizer(facts)->encode("a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_request);
  }
}

}  // namespace
}  // namespace assay::text::unigram_test
