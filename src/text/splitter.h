// Runs a pre-tokenizer's expressions over a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/pre_tokenizers.h"

namespace assay::text {

class Splitter {
 public:
  explicit Splitter(const PreTokenizerRules& rules);
  Splitter(Splitter&&) noexcept;
  ~Splitter();

  // The ends of the pieces in ascending order, the last at text.size(); none for an empty text. The
  // text is UTF-8.
  std::vector<uint32_t> split(std::string_view text) const;

 private:
  struct Expression;
  std::vector<Expression> expressions_;
};

}  // namespace assay::text
