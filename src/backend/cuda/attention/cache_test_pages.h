// For tests: sequences whose pages lie in no order.
#pragma once

#include <algorithm>

#include "backend/cuda/attention/kv_cache.h"

namespace assay::backend::cuda {

// Every one of the sequences holds n_positions then. The pages of each lie among the others', not even ascending where
// there are several.
inline void take_test_pages(KvCache& cache, int64_t n_sequences, int64_t n_positions) {
  cache.reserve(n_sequences * pages::pages_of(n_positions), nullptr);
  const auto extend_to = [&](int64_t sequence, int64_t n) {
    n = std::min(n, n_positions) - cache.tables().n_positions(sequence);
    if (n > 0) cache.extend(sequence, n, nullptr);
  };
  extend_to(0, 2 * kCachePage);
  for (int64_t s = 1; s < n_sequences; ++s) extend_to(s, kCachePage);
  if (n_sequences > 1) cache.truncate(0, 0);  // the others go on there
  for (int64_t n = kCachePage; n < n_positions + kCachePage; n += kCachePage) {
    for (int64_t s = n_sequences; s-- > 0;) extend_to(s, n);
  }
  cache.send_tables(nullptr);
}

}  // namespace assay::backend::cuda
