// WordPiece vocabularies (model "bert"): a text is cleaned, its words and punctuation marks are taken apart, and each
// word becomes the longest tokens that fit, from its beginning on; a word that cannot be spelled so, or is longer than
// 100 characters, is the unknown token. A token that begins a word is stored behind U+2581, others go on inside of one.
// A vocabulary without a capital letter is one of lower case: then letters are lowered and accents go. Source: Devlin
// et al. 2018, arXiv:1810.04805; the rules are those of Hugging Face's BertTokenizerFast.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/encoders/word_encoder.h"
#include "text/vocabulary.h"

namespace assay::text {

// The words and punctuation marks of a text, cleaned and, with `lowers`, in lower case without accents.
std::vector<std::string> bert_words(std::string_view text, bool lowers);

class WordPieceEncoder final : public WordEncoder {
 public:
  // The vocabulary must outlive the encoder.
  WordPieceEncoder(const Vocabulary& vocabulary, TokenId unknown);

  void encode(std::string_view text, bool opens, std::vector<TokenId>& out) const override;
  void append_bytes(TokenId id, std::string& out) const override;
  bool adds_space() const noexcept override { return true; }
  bool lowers() const noexcept { return lowers_; }

 private:
  void append_word(std::string_view word, std::vector<TokenId>& out) const;
  TokenId find_piece(std::string_view text) const noexcept;

  const Vocabulary& vocabulary_;
  TokenId unknown_;
  bool lowers_ = true;
};

}  // namespace assay::text
