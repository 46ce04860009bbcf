// Text to ids once more, written from the definitions of byte pair encoding and of SentencePiece's
// merges by score, over the vocabulary as the file's metadata has it: all pairs are looked at
// before every merge. Slow, short, and the judge of the fast one in text/, with which it shares the
// regular expressions of pre-tokenizers and the kinds of tokens, nothing else.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "assay/tokenizer.h"
#include "gguf/metadata.h"
#include "text/splitter.h"
#include "verify/naive_unigram.h"

namespace assay::verify {

class NaiveTokenizer {
 public:
  // Views into the metadata's file. tokenizer: whose kinds of tokens are taken; must outlive this.
  NaiveTokenizer(const gguf::Metadata& metadata, const Tokenizer& tokenizer);

  // add_bos: nullopt: as the file says.
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, std::optional<bool> add_bos = std::nullopt) const;
  std::vector<TokenId> encode(std::string_view text, bool parse_special,
                              std::optional<bool> add_bos = std::nullopt) const;

  bool adds_bos() const noexcept { return adds_bos_; }
  bool adds_eos() const noexcept { return adds_eos_; }
  // Whether every blank can be written: of sentence pieces the mark U+2581 is one. Without it the mark's bytes come
  // back in a blank's place.
  bool writes_blanks() const noexcept { return splitter_ != nullptr || unigram_ != nullptr || writes_blanks_; }
  // What decode(encode(text)) has to be; nullopt where characters become the unknown token or
  // blanks are changed.
  std::optional<std::string> round_trip(std::string_view text) const;

 private:
  struct Special {
    std::string_view text;
    TokenId id;
    bool anywhere;  // found in any text; else only where special tokens are parsed
  };
  std::vector<std::string> merged(std::vector<std::string> parts) const;
  void encode_words(std::string_view text, std::vector<TokenId>& out) const;
  void encode_pieces(std::string_view text, bool opens, std::vector<TokenId>& out) const;
  std::string comes_back(std::string_view text) const;
  void append_part(const std::string& part, std::vector<TokenId>& out) const;
  const Special* special_at(std::string_view text, size_t at, const std::vector<bool>& parsed) const;

  const Tokenizer* tokenizer_;
  bool is_bpe_ = false;  // pairs by the rank of merges; with a splitter, of bytes in words, else of characters
  std::unordered_map<std::string_view, TokenId> ids_;
  std::unordered_map<std::string, size_t> ranks_;  // "left right" -> rank
  std::vector<float> scores_;
  std::vector<Special> specials_;
  std::unique_ptr<const text::Splitter> splitter_;
  std::unique_ptr<const NaiveUnigram> unigram_;
  bool ignores_merges_ = false;
  bool writes_blanks_ = false, adds_space_ = true, joins_blanks_ = false, adds_bos_ = false, adds_eos_ = false;
  std::optional<TokenId> bos_, eos_, unknown_;
};

}  // namespace assay::verify
