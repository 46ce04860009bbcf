// See draft_pace.h.
#include "engine/scheduler/draft_pace.h"

#include <algorithm>

namespace assay::engine {
namespace {

constexpr double kLatestShare = 0.25;
constexpr int64_t kJudgedFrom = 4;  // runs before it judges
constexpr int64_t kPauseFirst = 16, kPauseMax = 256;

}  // namespace

int64_t DraftPace::next(int64_t n_max) noexcept {
  if (n_pause_ > 0) {
    --n_pause_;
    return 0;
  }
  return std::clamp<int64_t>(n_, std::min<int64_t>(1, n_max), n_max);
}

void DraftPace::add_cost(double relative) noexcept {
  if (relative > 0) cost_ = cost_ == 0 ? relative : cost_ + kLatestShare * (relative - cost_);
}

void DraftPace::add(int64_t n_guessed, int64_t n_accepted) noexcept {
  if (n_guessed == 0) return;
  n_ = n_accepted == n_guessed ? n_ * 2 : std::max<int64_t>(2, n_accepted + 2);
  n_ = std::min<int64_t>(n_, 256);
  const double yield = 1 + static_cast<double>(n_accepted);
  yield_ = n_seen_ == 0 ? yield : yield_ + kLatestShare * (yield - yield_);
  if (++n_seen_ < kJudgedFrom) return;
  if (yield_ >= cost_) {
    pause_ = 0;
    return;
  }
  pause_ = pause_ == 0 ? kPauseFirst : std::min(2 * pause_, kPauseMax);
  n_pause_ = pause_;
  n_seen_ = 0;
  cost_ = 0;
  n_ = 4;
}

}  // namespace assay::engine
