// The new file's tokenizer held against tokenizer.json.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/tokenizer.h"
#include "convert/tokenizer_json.h"
#include "convert/unigram_json.h"
#include "gguf/metadata.h"

namespace assay::converting {

// What tokenizer.json says of a text, computed straight from it: slow, and sharing nothing with the tokenizer but the
// engine of expressions.
class ReferenceTokenizer {
 public:
  // nullopt where tokenizer.json has a part that this does not know; `unknown` says which.
  static std::optional<ReferenceTokenizer> make(const TokenizerJson& tokenizer, std::string& unknown);
  std::vector<int64_t> encode(std::string_view text) const;  // no special tokens before or behind

 private:
  std::vector<int64_t> encode_plain(std::string_view text) const;
  void merge(std::string_view word, std::vector<int64_t>& ids) const;
  void append_pieces(const std::string& word, std::vector<int64_t>& ids) const;

  const TokenizerJson* tokenizer_ = nullptr;
  PreTokenizer pre_;
  bool is_word_pieces_ = false, lowers_ = false;
  bool is_bytes_ = false;      // else SentencePiece's way: blanks as U+2581, bytes that are no token by <0xNN>
  bool blank_before_ = false;  // U+2581 before the text
  std::unordered_map<std::string, int64_t> ids_;
  std::optional<UnigramReference> unigram_;
  std::unordered_map<std::string, size_t> ranks_;  // "left\0right"
};

const std::vector<std::string>& check_texts();  // code, digits, blanks, several scripts, emoji

// Whether SentencePiece's blank is put before a text; nullopt: by a part that this does not know.
std::optional<bool> puts_blank_before(const TokenizerJson& tokenizer);

// The number of texts on which both agree; 0 where tokenizer.json cannot be followed, which is noted. Error(bad_file)
// naming the first text that differs.
int64_t check_tokenizer(const gguf::Metadata& metadata, const TokenizerJson& tokenizer,
                        std::vector<std::string>& notes);

}  // namespace assay::converting
