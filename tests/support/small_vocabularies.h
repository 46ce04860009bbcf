// Made-up vocabularies of a few hundred tokens, one of each kind.
#pragma once

#include <array>
#include <string>
#include <string_view>

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
  facts.kinds = {TokenKind::unknown, TokenKind::control, TokenKind::control,
                 TokenKind::user_defined};
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

inline void add_token(text::VocabularyFacts& facts, std::string_view text,
                      TokenKind kind = TokenKind::normal) {
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
