// The best logits of rows, for samplers that begin with the best one or the k best: only these leave the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/queue.h"
#include "ops/executor.h"

namespace assay::backend::cuda {

inline constexpr int64_t kRankedMax = 256;

// Keys that wait between the passes over n_rows rows of `width` logits, of which the k best are wanted: so many words of 64 bits.
int64_t rank_scratch_words(int64_t n_rows, int64_t width, int64_t k);

// best [n_rows, k]: descending, the lower token first among equals, token kNone behind the last that is above minus infinity. A row that
// holds a NaN or +infinity: kNone alone. k from 1 to kRankedMax.
void rank_rows(const float* logits, int64_t n_rows, int64_t width, int64_t k, uint64_t* scratch, ops::RankedLogit* best, const Queue& queue);

}  // namespace assay::backend::cuda
