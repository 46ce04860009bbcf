// SentencePiece-style vocabularies (model "llama"): a blank is U+2581, the pair of neighbours whose
// joined text is the token of the highest score, leftmost first, becomes one until none does; a
// character without a token becomes its bytes' tokens "<0xXX>". Source: Kudo and Richardson 2018,
// arXiv:1808.06226.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/encoders/word_encoder.h"
#include "text/vocabulary.h"

namespace assay::text {

inline constexpr std::string_view kSpelledBlank = "\xE2\x96\x81";  // U+2581

// The tokens "<0xXX>" of all bytes, -1 for one without. Throws Error(bad_file) for a byte token that is not spelled so.
std::array<TokenId, 256> spelled_bytes(const Vocabulary& vocabulary);
// Appends the bytes of a token in whose text blanks are U+2581 and that may be a byte "<0xXX>".
void append_spelled(const Vocabulary& vocabulary, TokenId id, std::string& out);

// The token of a piece of text, -1 if it is none: control, unknown and byte tokens are no text, however it is spelled
// (as in SentencePiece itself).
TokenId find_piece(const Vocabulary& vocabulary, std::string_view text) noexcept;

struct SpmRules {
  bool add_space_prefix = true;           // a blank before a text that opens
  bool remove_extra_whitespaces = false;  // blanks at the ends go, others become one
};

class SpmEncoder final : public WordEncoder {
 public:
  // unknown: for bytes without a token, -1 if there is none. The vocabulary must outlive the
  // encoder. Throws Error(bad_file) for a byte token that is not spelled "<0xXX>".
  SpmEncoder(const Vocabulary& vocabulary, SpmRules rules, TokenId unknown);

  void encode(std::string_view text, bool opens, std::vector<TokenId>& out) const override;
  void append_bytes(TokenId id, std::string& out) const override;
  bool adds_space() const noexcept override { return rules_.add_space_prefix; }

 private:
  struct Symbol;
  std::string escaped(std::string_view text, bool opens) const;
  void append_symbol(std::string_view text, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  SpmRules rules_;
  TokenId unknown_ = -1;
  std::array<TokenId, 256> byte_token_{};
};

}  // namespace assay::text
