// SentencePiece's unigram model (model "t5"): text is normalised, a blank is U+2581, and of all ways to spell it with
// tokens the one with the highest sum of scores is taken. Sums are doubles; of equal ones that whose last token begins
// first wins. A character that is no token costs the least score less 10: its bytes' tokens "<0xXX>" where the
// vocabulary has them, else the unknown token, once for a run of such characters. Source: Kudo 2018, arXiv:1804.10959;
// the ties are those of SentencePiece's and Hugging Face's own programs.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chars_map.h"
#include "text/encoders/token_trie.h"
#include "text/encoders/word_encoder.h"
#include "text/vocabulary.h"

namespace assay::text {

struct UnigramRules {
  bool add_space_prefix = true;           // a blank before a text that opens
  bool remove_extra_whitespaces = false;  // blanks at the ends go, others become one
};

class UnigramEncoder final : public WordEncoder {
 public:
  // unknown: for characters without a token. The vocabulary must outlive the encoder. Throws Error(bad_file) for a
  // score that is infinite, a byte token that is not spelled "<0xXX>", and for what CharsMap refuses.
  UnigramEncoder(const Vocabulary& vocabulary, UnigramRules rules, std::span<const std::byte> chars_map,
                 TokenId unknown);

  void encode(std::string_view text, bool opens, std::vector<TokenId>& out) const override;
  void append_bytes(TokenId id, std::string& out) const override;
  bool adds_space() const noexcept override { return rules_.add_space_prefix; }

 private:
  class Lattice;
  std::string normalised(std::string_view text, bool opens) const;
  double score_of(TokenId id) const noexcept;  // user-defined tokens cost nothing
  bool append_as_bytes(std::string_view character, std::vector<TokenId>& out) const;  // false: a byte has no token

  const Vocabulary& vocabulary_;
  UnigramRules rules_;
  CharsMap chars_map_;
  TokenTrie trie_;
  TokenId unknown_ = -1;
  double unknown_score_ = 0;
  std::array<TokenId, 256> byte_token_{};  // -1: none
};

}  // namespace assay::text
