// The pages of the KV cache that a batch needs: all of them, or none and Error(out_of_memory). Error(bad_request) where
// a sequence of the batch gave back what its tokens see.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/runtime/kv_cache.h"
#include "ops/plan/batch_shape.h"

namespace assay::backend::cpu {

// n_held: positions of each sequence before the batch.
void take_pages(KvCache& cache, std::span<const int64_t> n_held, const ops::BatchShape& shape);

}  // namespace assay::backend::cpu
