// A mask for an answer that may begin with reasoning: the block is free, what comes after it is not.
#pragma once

#include <cstdint>
#include <memory>

#include "assay/reasoning.h"

namespace assay::engine {

// rest: asked with the tokens behind the block. n_max: tokens of the block; < 0: no limit. No end-of-generation token
// may come inside it, and none that has the end of its closing mark and more.
TokenMask after_reasoning(std::shared_ptr<const Tokenizer> tokenizer, const ReasoningMarks& marks, bool is_open,
                          int64_t n_max, TokenMask rest);

}  // namespace assay::engine
