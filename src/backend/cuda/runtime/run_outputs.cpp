// See run_outputs.h.
#include "backend/cuda/runtime/run_outputs.h"

#include <algorithm>
#include <atomic>

#include "backend/cuda/rows/rank.h"

namespace assay::backend::cuda {
namespace {

constexpr int64_t kRowsFetched = 16;

}  // namespace

RunOutputs::RunOutputs(const DeviceState& state)
    : state_(state), fetched_(static_cast<size_t>(state.options.n_outputs_max / kRowsFetched + 1), 0) {}

ops::RunSupport RunOutputs::supports() const {
  const int64_t n_max = state_.plan.logits == ops::kNone ? 0 : std::min(kRankedMax, state_.plan.vocab_size);
  return {n_max, state_.keeps_logits(), false};
}

bool RunOutputs::must_settle_for(const ops::RunRequest& request) const {
  const int64_t n = n_wanted(request);
  return n != n_ranked_ || (n > 0 && request.masks != nullptr);
}

void RunOutputs::take(const ops::RunRequest& request, Graphs& graphs) {
  take_n(n_wanted(request), graphs);
  allowed_.clear();
  masks_ = n_ranked_ > 0 ? request.masks : nullptr;
  if (masks_ != nullptr && !ranks_late() && ask_allowed()) graphs.clear();
}

// Whether the memory is another one than before.
bool RunOutputs::ask_allowed() {
  return allowed_.set(masks_->allowed(), state_.options.n_outputs_max, state_.plan.vocab_size);
}

void RunOutputs::take_n(int64_t n, Graphs& graphs) {
  if (n == n_ranked_) return;
  const int64_t n_rows_max = state_.options.n_outputs_max;
  const size_t bytes = 2 * static_cast<size_t>(n_rows_max * n) * sizeof(ops::RankedLogit);  // in two places
  if (bytes > best_.size()) {
    graphs.clear();
    scratch_ =
        DeviceBuffer(static_cast<size_t>(rank_scratch_words(n_rows_max, state_.plan.vocab_size, n)) * sizeof(uint64_t),
                     "ranking logits");
    best_ = PinnedBuffer(bytes, "the best logits");
  }
  if (n > 0) check(cudaMemsetAsync(scratch_.data(), 0, scratch_.size(), state_.stream.get()), "clearing keys");
  n_ranked_ = n;
  n_ranked_run_ = 0;
}

void RunOutputs::place(std::span<const int32_t> positions, bool keeps) {
  keeps_ = keeps;
  place_of_.assign(state_.shape.selected.size(), 0);
  for (size_t i = 0; keeps_ && i < place_of_.size(); ++i) place_of_[i] = positions[i] % 2;
}

void RunOutputs::mark_unranked(bool follows) const {
  for (int64_t i = 0; n_ranked_ > 0 && i < n_rows(); ++i) {
    const int place = place_of_[static_cast<size_t>(i)];
    best_at(follows ? 1 - place : place, i, n_ranked_)->token = kNotRanked;
  }
}

void RunOutputs::rank(const Queue& queue) const {
  if (!are_ranked()) return;
  const RankOutputs out{best_.as<ops::RankedLogit>(), keeps_ ? state_.handover() : Handover{}, state_.token_rows()};
  rank_rows({state_.value(state_.plan.logits), n_rows(), state_.plan.vocab_size, n_ranked_, allowed_.words()},
            scratch_.as<uint64_t>(), out, queue);
}

void RunOutputs::rank_allowed(const Queue& queue) {
  if (!are_ranked()) return;
  ask_allowed();
  rank(queue);
}

bool RunOutputs::are_there_from(int64_t& i) const {
  for (; i < n_rows(); ++i) {
    const std::atomic_ref token(best_at(place_of_[static_cast<size_t>(i)], i, n_ranked_)->token);
    if (token.load(std::memory_order_acquire) == kNotRanked) return false;
  }
  return true;
}

ops::RankedLogit* RunOutputs::best_at(int place, int64_t i_output, int64_t n) const {
  return best_.as<ops::RankedLogit>() + (place * state_.n_rows_kept() + i_output) * n;
}

std::span<const ops::RankedLogit> RunOutputs::ranked(int64_t i_output) const {
  if (n_ranked_run_ == 0) return {};
  const std::span row(best_at(place_of_[static_cast<size_t>(i_output)], i_output, n_ranked_run_),
                      static_cast<size_t>(n_ranked_run_));
  return row.first(static_cast<size_t>(
      std::find_if(row.begin(), row.end(), [](const auto& x) { return x.token == ops::kNone; }) - row.begin()));
}

int32_t RunOutputs::best_of(int64_t i_output) const {
  const std::span<const ops::RankedLogit> row = ranked(i_output);
  return row.empty() ? ops::kNone : row.front().token;
}

std::span<const float> RunOutputs::logits(int64_t i_output) const {
  fetch(i_output);
  const int64_t width = state_.plan.output_width();
  return {state_.logits_host.as<const float>() + i_output * width, static_cast<size_t>(width)};
}

// Their neighbours come with them.
void RunOutputs::fetch(int64_t i_output) const {
  const int64_t i_fetch = i_output / kRowsFetched, begin = i_fetch * kRowsFetched,
                n = std::min(n_rows() - begin, kRowsFetched);
  if (n <= 0 || fetched_[static_cast<size_t>(i_fetch)] != 0) return;
  if (keeps_) {
    for (int64_t i = begin; i < begin + n; ++i)
      state_.read_row(state_.kept_logits(place_of_[static_cast<size_t>(i)], i), state_.plan.output(), i,
                      state_.logits_host);
  } else {
    state_.read_rows(state_.plan.output(), begin, n, state_.logits_host);
  }
  state_.stream.wait();
  fetched_[static_cast<size_t>(i_fetch)] = 1;
}

}  // namespace assay::backend::cuda
