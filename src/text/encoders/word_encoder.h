// What differs between kinds of vocabularies: how plain text, with no special token in it, becomes
// ids, and what bytes an id is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/tokenizer.h"

namespace assay::text {

class WordEncoder {
 public:
  virtual ~WordEncoder() = default;
  // Appends the ids of a text. opens: it stands at the beginning or after a special token.
  virtual void encode(std::string_view text, bool opens, std::vector<TokenId>& out) const = 0;
  // Appends the bytes of a normal or byte token.
  virtual void append_bytes(TokenId id, std::string& out) const = 0;
  // True where encode puts a blank before a text that opens.
  virtual bool adds_space() const noexcept = 0;
};

}  // namespace assay::text
