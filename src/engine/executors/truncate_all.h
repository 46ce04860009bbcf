// Executors that share a model are cut alike: where one of them goes back further, to a checkpoint of its states, so do
// the others.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "ops/plan/executor.h"

namespace assay::engine {

inline void truncate_all(const std::vector<std::unique_ptr<ops::Executor>>& executors, int sequence,
                         int64_t n_positions) {
  for (bool again = true; again;) {
    again = false;
    for (const auto& executor : executors) {
      executor->truncate(sequence, n_positions);
      if (executor->n_positions(sequence) >= n_positions) continue;
      n_positions = executor->n_positions(sequence);
      again = true;
    }
  }
}

}  // namespace assay::engine
