// See token_risk.h.
#include "verify/token_risk.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace assay::verify {
namespace {

constexpr size_t kTopTokens = 10;

// The ids of the largest logits, the lowest id first among equals; no more than there are.
std::vector<int32_t> largest(std::span<const double> logits) {
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const size_t n = std::min(kTopTokens, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(), [&](int32_t a, int32_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  ids.resize(n);
  return ids;
}

double log_sum(std::span<const double> logits) {
  const double largest_logit = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest_logit);
  return largest_logit + std::log(sum);
}

double divergence(std::span<const double> found, std::span<const double> chain) {
  const double of_found = log_sum(found), of_chain = log_sum(chain);
  double sum = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    const double log_p = chain[i] - of_chain;
    sum += std::exp(log_p) * (log_p - (found[i] - of_found));
  }
  return std::max(sum, 0.0);  // rounding alone makes it negative
}

}  // namespace

void add_token_risks(const ops::Batch& batch, std::span<const double> found, std::span<const double> chain,
                     std::vector<TokenRisk>& risks) {
  const auto n_outputs =
      static_cast<size_t>(std::count_if(batch.outputs.begin(), batch.outputs.end(), [](uint8_t o) { return o != 0; }));
  if (n_outputs == 0 || found.empty() || found.size() != chain.size() || found.size() % n_outputs != 0) return;
  const size_t n_vocab = found.size() / n_outputs;
  size_t i_output = 0;
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    if (batch.outputs[i] == 0) continue;
    const std::span<const double> row = found.subspan(i_output * n_vocab, n_vocab),
                                  right = chain.subspan(i_output * n_vocab, n_vocab);
    ++i_output;
    TokenRisk risk;
    risk.position = batch.positions[i];
    risk.token = batch.tokens[i];
    const bool finite = std::all_of(row.begin(), row.end(), [](double x) { return std::isfinite(x); });
    const std::vector<int32_t> top = largest(right);
    risk.oracle_top = top[0];
    risk.gap = top.size() > 1 ? right[static_cast<size_t>(top[0])] - right[static_cast<size_t>(top[1])] : 0;
    if (finite) {
      risk.found_top = largest(row)[0];
      for (const int32_t id : top)
        risk.error = std::max(risk.error, std::abs(row[static_cast<size_t>(id)] - right[static_cast<size_t>(id)]));
      risk.kl_divergence = divergence(row, right);
    } else {
      risk.found_top = -1;
      risk.error = risk.kl_divergence = std::numeric_limits<double>::infinity();
    }
    risks.push_back(risk);
  }
}

}  // namespace assay::verify
