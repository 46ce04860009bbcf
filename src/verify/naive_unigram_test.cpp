// The judge of unigram vocabularies against its own judges: SentencePiece and Hugging Face's tokenizers.
#include "verify/naive_unigram.h"

#include <gtest/gtest.h>

#include "gguf/file.h"
#include "support/gguf_writer.h"
#include "support/unigram_facts.h"
#include "text/from_gguf.h"

namespace assay::verify::naive_unigram_test {
namespace {

test::Bytes file_of(const text::VocabularyFacts& facts) {
  std::vector<std::string> tokens;
  facts.tokens.for_each([&](size_t, std::string_view text) { tokens.emplace_back(text); });
  std::vector<int32_t> kinds;
  for (const TokenKind kind : facts.kinds) kinds.push_back(static_cast<int32_t>(kind) + 1);
  std::vector<uint8_t> rules;
  for (const std::byte byte : facts.chars_map) rules.push_back(static_cast<uint8_t>(byte));
  test::GgufWriter file;
  file.set("tokenizer.ggml.model", "t5").set("tokenizer.ggml.tokens", tokens).set("tokenizer.ggml.token_type", kinds);
  file.set("tokenizer.ggml.scores", facts.scores).set("tokenizer.ggml.precompiled_charsmap", rules);
  file.set("tokenizer.ggml.add_space_prefix", *facts.add_space_prefix);
  file.set("tokenizer.ggml.remove_extra_whitespaces", *facts.remove_extra_whitespaces);
  return file.bytes();
}

TEST(NaiveUnigram, GivesTheIdsOfItsTwoJudges) {
  int n_texts = 0;
  test::for_each_unigram_vocabulary([&](const test::UnigramVocabulary& one) {
    const test::Bytes bytes = file_of(one.facts);
    const gguf::File file = gguf::File::parse(bytes);
    const auto tokenizer = text::make_tokenizer(file.metadata());
    const NaiveUnigram naive(file.metadata(), *tokenizer);
    for (const auto& entry : one.cases) {
      const std::string text = test::text_of(test::from_hex(test::text(entry.at(0))));
      std::vector<TokenId> found, expected;
      naive.encode(text, found);
      for (const auto& id : entry.at(1).as_array()) expected.push_back(id.to_number<TokenId>());
      EXPECT_EQ(found, expected) << one.name << ": " << ::testing::PrintToString(text);
      EXPECT_EQ(tokenizer->encode(text, {false, false, false}), expected) << "by the file itself";
      ++n_texts;
    }
  });
  EXPECT_GE(n_texts, 1500);
}

}  // namespace
}  // namespace assay::verify::naive_unigram_test
