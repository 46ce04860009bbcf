// The texts that verify feeds: short, and chosen so that every rule of a tokenizer, a template and
// a detokenizer is touched.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/tokenizer.h"

namespace assay::verify {

// Blanks, line ends, digits, scripts, emoji, marks, right to left, empty, text that looks like
// special tokens, bytes that are no UTF-8.
std::vector<std::string> probe_texts(const Tokenizer& tokenizer);

// A paragraph of plain English that any language model finds likely.
std::string_view english_paragraph();

// The texts of the vocabulary's control tokens, at most so many: BOS, EOS and those that end
// generations first.
std::vector<std::string> special_texts(const Tokenizer& tokenizer, size_t n_max);

}  // namespace assay::verify
