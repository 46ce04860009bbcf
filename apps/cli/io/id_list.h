// Token ids as users write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/tokenizer.h"

namespace assay::cli {

// A JSON array, an object with the array under "ids", or numbers between commas and blanks.
// Error(bad_request) for anything else.
std::vector<TokenId> parse_ids(std::string_view text);

}  // namespace assay::cli
