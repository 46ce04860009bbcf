// The batch that a caller of an executor will most likely run next: of every token of the last one the best that
// follows it, one position further on. What the host has to know of it, so that the device may begin before it is asked
// for.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/plan/batch_shape.h"
#include "ops/plan/executor.h"

namespace assay::backend::cuda {

// Whether there may be such a batch: every token wants its logits and is its sequence's only one.
bool is_one_each(const ops::BatchShape& shape, int64_t n_tokens);

class NextBatch {
 public:
  void expect_after(const ops::Batch& batch);
  void forget() noexcept { is_expected_ = false; }
  // best_of: the best token after the i-th of the last batch, kNone where there is none.
  bool is(const ops::Batch& batch, const std::function<int32_t(int64_t i)>& best_of) const;

 private:
  bool is_expected_ = false;
  std::vector<int32_t> positions_, sequences_;
};

}  // namespace assay::backend::cuda
