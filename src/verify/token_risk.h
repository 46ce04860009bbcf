// What an error in the logits does to the choice of the next token.
#pragma once

#include <span>
#include <vector>

#include "assay/verify.h"
#include "ops/plan/executor.h"

namespace assay::verify {

// Appends one entry for each output of the batch. found, chain: [n_outputs, vocab_size]; nothing is
// appended where the two differ in size.
void add_token_risks(const ops::Batch& batch, std::span<const double> found, std::span<const double> chain,
                     std::vector<TokenRisk>& risks);

}  // namespace assay::verify
