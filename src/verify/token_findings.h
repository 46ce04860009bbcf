// Why a dump's token ids are not those of our own tokenizer: the faults that a prompt carries
// before any op runs (C1 to C7 of the catalogue).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/tokenizer.h"

namespace assay::verify {

// One line that names the first position that differs and what explains it; nullopt where the ids
// begin with those that `encode` gives the text, with or without special tokens parsed (what
// follows a prompt may have been generated).
using Encode = std::function<std::vector<TokenId>(std::string_view text, const EncodeOptions& options)>;
std::optional<std::string> explain_tokens(const Tokenizer& tokenizer, const Encode& encode, std::string_view text,
                                          std::span<const int32_t> found);

}  // namespace assay::verify
