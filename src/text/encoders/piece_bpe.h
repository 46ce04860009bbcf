// Byte pair encoding over characters (model "gemma4"): a blank is U+2581, nothing cuts the text into words, the pair
// with the strongest merge, leftmost first, becomes one token until no pair merges; a character without a token is its
// bytes' tokens "<0xXX>". Source: Hugging Face's tokenizers, models::bpe with byte_fallback, as google/gemma-4 has it.
// llama.cpp cuts at line breaks besides, which merges over them would notice.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/encoders/bpe.h"
#include "text/encoders/word_encoder.h"
#include "text/vocabulary.h"

namespace assay::text {

class PieceBpeEncoder final : public WordEncoder {
 public:
  // unknown: for bytes without a token, -1 if there is none. The vocabulary must outlive the encoder. Throws
  // Error(bad_file) for a byte token that is not spelled "<0xXX>", and for merges as MergeTable does.
  PieceBpeEncoder(const Vocabulary& vocabulary, std::span<const std::string_view> merges, TokenId unknown,
                  base::ThreadPool& pool);

  void encode(std::string_view text, bool opens, std::vector<TokenId>& out) const override;
  void append_bytes(TokenId id, std::string& out) const override;
  bool adds_space() const noexcept override { return false; }

 private:
  void add_character(std::string_view character, PairMerger& merger) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  TokenId unknown_ = -1;
  std::array<TokenId, 256> byte_token_{};
};

}  // namespace assay::text
