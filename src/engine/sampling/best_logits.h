// The largest logits of all.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "assay/tokenizer.h"

namespace assay::engine {

// The n largest, or all where there are fewer: descending, the lower id first among equals. A NaN is never among them.
std::vector<std::pair<TokenId, double>> best_logits(std::span<const double> logits, int64_t n);

}  // namespace assay::engine
