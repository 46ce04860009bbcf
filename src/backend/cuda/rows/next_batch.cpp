// See next_batch.h.
#include "backend/cuda/rows/next_batch.h"

#include <algorithm>

namespace assay::backend::cuda {
namespace {

int32_t sequence_of(const ops::Batch& batch, size_t i) noexcept {
  return batch.sequences.empty() ? 0 : batch.sequences[i];
}

}  // namespace

bool is_one_each(const ops::BatchShape& shape, int64_t n_tokens) {
  const auto n = static_cast<size_t>(n_tokens);
  if (shape.selected.size() != n || shape.token_runs.size() != n) return false;
  return std::all_of(shape.token_runs.begin(), shape.token_runs.end(), [&](const ops::TokenRun& run) {
    return run.position + 1 == shape.n_positions[static_cast<size_t>(run.sequence)];
  });
}

void NextBatch::expect_after(const ops::Batch& batch) {
  const size_t n = batch.tokens.size();
  positions_.resize(n);
  sequences_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    positions_[i] = batch.positions[i] + 1;
    sequences_[i] = sequence_of(batch, i);
  }
  is_expected_ = true;
}

bool NextBatch::is(const ops::Batch& batch, const std::function<int32_t(int64_t i)>& best_of) const {
  if (!is_expected_ || batch.tokens.size() != positions_.size()) return false;
  for (size_t i = 0; i < positions_.size(); ++i) {
    if (batch.positions[i] != positions_[i] || sequence_of(batch, i) != sequences_[i] || batch.outputs[i] == 0)
      return false;
    const int32_t best = best_of(static_cast<int64_t>(i));
    if (best == ops::kNone || batch.tokens[i] != best) return false;
  }
  return true;
}

}  // namespace assay::backend::cuda
