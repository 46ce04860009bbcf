// Made-up vocabularies of a few hundred tokens, one of each kind.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "support/chars_map_builder.h"
#include "text/byte_alphabet.h"
#include "text/facts.h"

namespace assay::test {

// Spellings of all bytes, which the facts below point into.
struct ByteSpellings {
  std::array<std::string, 256> letters;  // of the byte alphabet
  std::array<std::string, 256> hex;      // <0xXX>
  ByteSpellings() {
    const char* digits = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte) {
      const char one = static_cast<char>(byte);
      letters[byte] = text::kByteAlphabet.spell({&one, 1});
      hex[byte] = std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
    }
  }
};
inline const ByteSpellings& byte_spellings() {
  static const ByteSpellings all;
  return all;
}

inline text::VocabularyFacts sentence_piece_facts() {
  text::VocabularyFacts facts;
  facts.model = "llama";
  facts.tokens = {"<unk>", "<s>", "</s>", "<user>"};
  facts.kinds = {TokenKind::unknown, TokenKind::control, TokenKind::control, TokenKind::user_defined};
  facts.scores = {0, 0, 0, 0};
  for (const std::string& hex : byte_spellings().hex) {
    facts.tokens.push_back(hex);
    facts.kinds.push_back(TokenKind::byte);
    facts.scores.push_back(0);
  }
  float score = -1;
  for (const char* piece : {"ab", "▁ab", "▁a", "▁", "a", "b"}) {
    facts.tokens.push_back(piece);
    facts.kinds.push_back(TokenKind::normal);
    facts.scores.push_back(score--);
  }
  return facts;
}

inline void add_token(text::VocabularyFacts& facts, std::string_view text, TokenKind kind = TokenKind::normal) {
  facts.tokens.push_back(text);
  facts.kinds.push_back(kind);
}

inline text::VocabularyFacts word_piece_facts() {
  text::VocabularyFacts facts;
  facts.model = "bert";
  add_token(facts, "[UNK]", TokenKind::unknown);
  for (const char* marker : {"[CLS]", "[SEP]"}) add_token(facts, marker, TokenKind::control);
  for (const char* piece : {"▁a", "▁ab", "▁b", "a", "b", "bc", "▁.", "▁é", "▁中", "\u0301"}) add_token(facts, piece);
  return facts;
}

// With rules that the facts point into.
inline text::VocabularyFacts unigram_facts() {
  static const std::vector<std::byte> kRules = CharsMapBuilder()
                                                   .add("\t", " ")
                                                   .add("A", "a")
                                                   .add("\x7F", "")
                                                   .add("\uFB01", "fi")
                                                   .add("e\u0301", "\u00E9")
                                                   .bytes();
  text::VocabularyFacts facts;
  facts.model = "t5";
  facts.chars_map = kRules;
  add_token(facts, "<unk>", TokenKind::unknown);
  for (const char* marker : {"<s>", "</s>"}) add_token(facts, marker, TokenKind::control);
  add_token(facts, "<user>", TokenKind::user_defined);
  add_token(facts, "<0xC3>", TokenKind::byte);
  add_token(facts, "<0xA9>", TokenKind::byte);
  for (const char* piece : {"\u2581", "a", "b", "ab", "\u2581a", "aa", "i", "\u2581the"}) add_token(facts, piece);
  for (size_t i = 0; i < facts.tokens.size(); ++i) facts.scores.push_back(-static_cast<float>(i % 5) - 1.0f);
  return facts;
}

inline text::VocabularyFacts byte_level_facts() {
  text::VocabularyFacts facts;
  facts.model = "gpt2";
  facts.pre_tokenizer = "gpt-2";
  add_token(facts, "<user>", TokenKind::user_defined);
  add_token(facts, "<user>!", TokenKind::user_defined);
  add_token(facts, "<|im_end|>", TokenKind::control);
  for (const char* text : {"ll", "he", "llo", "hello"}) add_token(facts, text);
  for (const std::string& letter : byte_spellings().letters) add_token(facts, letter);
  facts.merges = {"l l", "h e", "ll o", "he llo"};
  return facts;
}

}  // namespace assay::test
