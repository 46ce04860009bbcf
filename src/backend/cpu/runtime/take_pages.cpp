// See take_pages.h.
#include "backend/cpu/runtime/take_pages.h"

#include <string>

#include "assay/error.h"

namespace assay::backend::cpu {

void take_pages(KvCache& cache, std::span<const int64_t> n_held, const ops::BatchShape& shape) {
  int64_t n_needed = 0;
  for (size_t i = 0; i < n_held.size(); ++i) {
    const auto sequence = static_cast<int64_t>(i);
    n_needed += cache.tables().n_needed(sequence, shape.n_positions[i] - n_held[i]);
    if (shape.n_positions[i] > n_held[i] && cache.tables().n_usable(sequence, n_held[i]) < n_held[i]) {
      throw Error(Errc::bad_request, "sequence " + std::to_string(i) + " cannot go on behind " +
                                         std::to_string(n_held[i]) + " positions: their window was given back");
    }
  }
  const int64_t n_free = cache.tables().n_free();
  if (n_needed > n_free) {
    throw Error(Errc::out_of_memory, "a batch of " + std::to_string(shape.token_runs.size()) +
                                         " runs of tokens needs " + std::to_string(n_needed) +
                                         " pages of the KV cache; " + std::to_string(n_free) + " of " +
                                         std::to_string(cache.tables().all().pool().n_pages()) + " are free");
  }
  for (size_t i = 0; i < n_held.size(); ++i) {
    cache.extend(static_cast<int64_t>(i), shape.n_positions[i] - n_held[i]);
  }
}

}  // namespace assay::backend::cpu
