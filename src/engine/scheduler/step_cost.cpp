// See step_cost.h.
#include "engine/scheduler/step_cost.h"

#include <algorithm>
#include <bit>

namespace assay::engine {
namespace {

// Of a measurement in what is believed. Slower steps are believed at once and forgotten slowly: the gap is a promise
// about the slowest step, not about the mean.
constexpr double kSlowerShare = 0.7;
constexpr double kFasterShare = 0.1;
constexpr double kMargin = 0.8;          // of the gap; a machine's next step may be slower than its last
constexpr int64_t kFirstTokens = 32;     // where no prompt was measured yet
constexpr double kNearPositions = 1024;  // up to here products, not attention, are what a token costs
constexpr int kStepsLimited = 256;

size_t bucket(int64_t n_answers, size_t n_buckets) noexcept {
  return std::min(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(n_answers))), n_buckets - 1);
}

void learn(double& believed, double ms) noexcept {
  believed = believed == 0 ? ms : believed + (ms > believed ? kSlowerShare : kFasterShare) * (ms - believed);
}

}  // namespace

void StepCost::add(int64_t n_answers, const PromptTokens& prompt, double ms, double gap_ms) {
  if (prompt.n == 0) {
    learn(answers_ms_[bucket(n_answers, answers_ms_.size())], ms);
    return;
  }
  learn(prompt_ms_, std::max(ms - answers_ms(n_answers), 1e-6) / static_cast<double>(prompt.n));
  position_ = prompt.position;
  if (n_answers == 0) return;
  if (n_steps_limited_ > 0 && --n_steps_limited_ == 0) n_most_ = 0;
  if (ms > gap_ms * kMargin) limit(prompt);
}

void StepCost::limit(const PromptTokens& prompt) noexcept {
  n_most_ = std::max<int64_t>(prompt.n * 7 / 8, 1);
  position_of_most_ = prompt.position;
  n_steps_limited_ = kStepsLimited;
}

// Of the nearest number of answers at or below it that was seen.
double StepCost::answers_ms(int64_t n_answers) const noexcept {
  if (n_answers == 0) return 0;
  for (size_t i = bucket(n_answers, answers_ms_.size()); i > 0; --i) {
    if (answers_ms_[i] > 0) return answers_ms_[i];
  }
  return 0;
}

double StepCost::weight(double position) const noexcept {
  return std::max(position / std::max(position_, kNearPositions), 1.0);
}

int64_t StepCost::prompt_tokens(int64_t n_answers, double position, double gap_ms, int64_t n_max) const noexcept {
  if (n_answers == 0) return n_max;
  if (prompt_ms_ == 0) return std::clamp<int64_t>(kFirstTokens, 1, n_max);
  const bool is_limited = n_most_ > 0 && 2 * position >= position_of_most_;  // far ahead of there steps are quicker
  const double most = static_cast<double>(is_limited ? std::min(n_most_, n_max) : n_max);
  const double left = gap_ms * kMargin - answers_ms(n_answers);
  return static_cast<int64_t>(std::clamp(left / prompt_ms_, 1.0, most));
}

}  // namespace assay::engine
