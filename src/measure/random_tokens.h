// Tokens for measurements: the same ones every time.
#pragma once

#include <cstdint>
#include <vector>

#include "assay/tokenizer.h"

namespace assay::measure {

std::vector<TokenId> random_tokens(int64_t n, int64_t vocab_size);

}  // namespace assay::measure
