// What tests ask of a row of logits. Compiled with optimisation: a row of a real model has a quarter of a million, and
// tests ask for thousands of rows.
#pragma once

#include <cstdint>
#include <span>

namespace assay::test {

double log_sum_exp(std::span<const double> logits);

// The Kullback-Leibler divergence of what the second row says of the next token from what the first, the truth, says.
double kl_divergence(std::span<const double> truth, std::span<const double> found);

// The best token, the lowest id of equal ones, and how far the second best is behind.
struct Best {
  int32_t token = -1;
  double margin = 0;
};
Best best_of(std::span<const float> logits);
Best best_of(std::span<const double> logits);

}  // namespace assay::test
