// What a sampler has to do, written once more from the definitions, in plain double and without a
// care for time: the judge of engine/sampler.
#pragma once

#include <span>
#include <vector>

#include "assay/sampler.h"

namespace assay::verify {

// The probability of every token after logit bias, penalties, top-k, top-p, min-p and temperature,
// in that order; 0 for those left out. Temperature 0: 1 for the token of the largest logit, the
// lowest id among equals. The options' other steps must be off.
std::vector<double> reference_distribution(const SamplerOptions& options, std::span<const float> logits,
                                           std::span<const TokenId> history);

// Pearson's statistic of draws against probabilities; tokens of which fewer than 5 are expected
// count together.
struct ChiSquare {
  double statistic = 0;
  int64_t n_classes = 0;
  int64_t n_impossible = 0;  // draws of tokens whose probability is 0
  // The statistic's quantile that right draws pass but once in 10^9.
  double limit() const;
};
ChiSquare chi_square(std::span<const TokenId> draws, std::span<const double> probabilities);

}  // namespace assay::verify
