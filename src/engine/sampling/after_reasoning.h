// A mask for an answer that may begin with reasoning: the block is free, what comes after it is not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "assay/reasoning.h"

namespace assay::engine {

// Tokens that have the last byte of the closing mark and something behind it. All of a vocabulary are looked at: keep
// it.
using TokensWithMore = std::vector<std::pair<TokenId, std::string>>;
std::shared_ptr<const TokensWithMore> tokens_with_more(const Tokenizer& tokenizer, const ReasoningMarks& marks);

// rest: asked with the tokens behind the block. n_max: tokens of the block; < 0: no limit. No end-of-generation token
// may come inside it, and none that has the end of its closing mark and more.
TokenMask after_reasoning(std::shared_ptr<const Tokenizer> tokenizer, const ReasoningMarks& marks, bool is_open,
                          int64_t n_max, TokenMask rest, std::shared_ptr<const TokensWithMore> with_more);

}  // namespace assay::engine
