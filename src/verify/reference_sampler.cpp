// See reference_sampler.h.
#include "verify/reference_sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace assay::verify {
namespace {

struct Entry {
  size_t id;
  double logit;
};

void penalise(std::vector<double>& logits, const SamplerOptions& o, std::span<const TokenId> history) {
  const size_t n =
      o.penalty_last_n < 0 ? history.size() : std::min(history.size(), static_cast<size_t>(o.penalty_last_n));
  std::map<TokenId, int64_t> counts;
  for (const TokenId id : history.last(n)) ++counts[id];
  for (const auto& [id, count] : counts) {
    double& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / o.repeat_penalty : logit * o.repeat_penalty;
    logit -= static_cast<double>(count) * o.frequency_penalty + o.presence_penalty;
  }
}

std::vector<double> softmax(const std::vector<Entry>& entries) {
  std::vector<double> shares;
  double sum = 0;
  for (const Entry& entry : entries) sum += std::exp(entry.logit - entries.front().logit);
  for (const Entry& entry : entries) shares.push_back(std::exp(entry.logit - entries.front().logit) / sum);
  return shares;
}

}  // namespace

std::vector<double> reference_distribution(const SamplerOptions& o, std::span<const float> raw,
                                           std::span<const TokenId> history) {
  std::vector<double> logits(raw.begin(), raw.end());
  for (const LogitBias& bias : o.logit_bias) logits[static_cast<size_t>(bias.token)] += static_cast<double>(bias.bias);
  penalise(logits, o, history);
  std::vector<Entry> entries;  // from the most likely on; equals by id
  for (size_t id = 0; id < logits.size(); ++id) entries.push_back({id, logits[id]});
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  if (o.top_k > 0) entries.resize(std::min(entries.size(), static_cast<size_t>(o.top_k)));
  if (o.top_p < 1) {
    const std::vector<double> shares = softmax(entries);
    size_t n = 0;
    for (double sum = 0; n < entries.size() && (n == 0 || sum < o.top_p); ++n) sum += shares[n];
    entries.resize(n);
  }
  if (o.min_p > 0) {
    const std::vector<double> shares = softmax(entries);
    size_t n = 1;
    while (n < entries.size() && shares[n] >= o.min_p * shares[0]) ++n;
    entries.resize(n);
  }
  if (o.temperature <= 0) entries.resize(1);
  for (Entry& entry : entries) entry.logit /= o.temperature > 0 ? o.temperature : 1;
  const std::vector<double> shares = softmax(entries);
  std::vector<double> probabilities(raw.size(), 0.0);
  for (size_t i = 0; i < entries.size(); ++i) probabilities[entries[i].id] = shares[i];
  return probabilities;
}

double ChiSquare::limit() const {  // Wilson and Hilferty 1931, at 6 standard deviations
  const auto k = static_cast<double>(std::max<int64_t>(1, n_classes - 1));
  const double root = 1 - 2 / (9 * k) + 6 * std::sqrt(2 / (9 * k));
  return k * root * root * root;
}

ChiSquare chi_square(std::span<const TokenId> draws, std::span<const double> probabilities) {
  ChiSquare result;
  std::vector<double> counts(probabilities.size(), 0.0);
  for (const TokenId id : draws) {
    const bool possible =
        id >= 0 && static_cast<size_t>(id) < counts.size() && probabilities[static_cast<size_t>(id)] > 0;
    if (possible) {
      counts[static_cast<size_t>(id)] += 1;
    } else {
      ++result.n_impossible;
    }
  }
  const auto n = static_cast<double>(draws.size());
  double rest_expected = 0, rest_count = 0;
  const auto add = [&](double count, double expected) {
    result.statistic += (count - expected) * (count - expected) / expected;
    ++result.n_classes;
  };
  for (size_t id = 0; id < counts.size(); ++id) {
    if (n * probabilities[id] >= 5) {
      add(counts[id], n * probabilities[id]);
    } else {
      rest_expected += n * probabilities[id];
      rest_count += counts[id];
    }
  }
  if (rest_expected >= 5) add(rest_count, rest_expected);
  return result;
}

}  // namespace assay::verify
