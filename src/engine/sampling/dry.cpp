// DRY: repetition lengths by the Z function of the reversed history, in linear time.
#include "engine/sampling/dry.h"

#include <algorithm>

namespace assay::engine {
namespace {

constexpr double kPenaltyMax = 1e30;  // so that a long repetition is forbidden without becoming infinite

double power(double base, int64_t exponent) noexcept {
  double result = 1;
  while (exponent > 0) {
    if (exponent & 1) result = std::min(result * base, kPenaltyMax);
    base = std::min(base * base, kPenaltyMax);
    exponent /= 2;
  }
  return result;
}

}  // namespace

Dry::Dry(const SamplerOptions& options, Sampler::TokenText token_text)
    : multiplier_(options.dry_multiplier), base_(options.dry_base), allowed_length_(options.dry_allowed_length),
      last_n_(options.dry_penalty_last_n), token_text_(std::move(token_text)) {
  if (token_text_) breakers_ = options.dry_sequence_breakers;
  for (const std::string& breaker : breakers_) breaker_bytes_max_ = std::max(breaker_bytes_max_, breaker.size());
}

void Dry::clear() {
  tail_.clear();
  since_breaker_ = 0;
}

void Dry::accept(TokenId token) {
  since_breaker_ += 1;
  if (breakers_.empty()) return;
  const size_t n_old = tail_.size();
  tail_ += token_text_(token);
  for (const std::string& breaker : breakers_) {
    const size_t at = tail_.rfind(breaker);
    if (at != std::string::npos && at + breaker.size() > n_old) since_breaker_ = 0;
  }
  const size_t n_kept = std::min(tail_.size(), breaker_bytes_max_ - 1);
  tail_.erase(0, tail_.size() - n_kept);
}

void Dry::apply(std::span<const TokenId> history, std::span<float> logits) {
  const auto n_history = static_cast<int64_t>(history.size());
  const int64_t n = last_n_ < 0 ? n_history : std::min(last_n_, n_history);
  if (n <= allowed_length_ || since_breaker_ < allowed_length_) return;
  const auto back = [&](int64_t i) { return history[static_cast<size_t>(n_history - 1 - i)]; };
  // repeats_[i]: how many tokens ending i before the last one equal the last ones.
  repeats_.assign(static_cast<size_t>(n), 0);
  for (int64_t i = 1, left = 0, right = 0; i < n; ++i) {
    int64_t length = i < right ? std::min(right - i, repeats_[static_cast<size_t>(i - left)]) : 0;
    while (i + length < n && back(length) == back(i + length)) ++length;
    repeats_[static_cast<size_t>(i)] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
  }
  found_.clear();
  for (int64_t i = 1; i < n; ++i) {
    const int64_t length = std::min(repeats_[static_cast<size_t>(i)], since_breaker_);
    if (length >= allowed_length_) found_.emplace_back(back(i - 1), length);
  }
  std::sort(found_.begin(), found_.end());
  for (size_t i = 0; i < found_.size(); ++i) {
    if (i + 1 < found_.size() && found_[i + 1].first == found_[i].first)
      continue;  // the longest of a token stands last
    const double penalty = std::min(multiplier_ * power(base_, found_[i].second - allowed_length_), kPenaltyMax);
    logits[static_cast<size_t>(found_[i].first)] -= static_cast<float>(penalty);
  }
}

}  // namespace assay::engine
