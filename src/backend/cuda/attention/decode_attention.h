// Decode of one token: norm and rotation of heads, the cache, attention and the merge of its segments, in one kernel.
// Contracts as of the single ops.
//
//   block (segment, KV head)    what the cache holds --> shared memory and registers, ahead of the wait for the projections
//     heads                     norm, rotation: queries --> shared memory; the new key and value --> the cache
//     thread t                  score of key t for each query head of the block --> p, shared memory; then columns of the values
//   the block that comes last   merges the segments' (m, l, o) in order --> y
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/attention_table.h"
#include "backend/cuda/rows/fused.h"
#include "backend/cuda/rows/gather.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

struct DecodeAttention {
  HeadsTask heads;     // of one token; any of its outputs may be null
  float* y = nullptr;  // [n_heads, head_dim]
  int64_t window = 0;
  float scale = 0;
  int64_t n_segments = 0;       // that the query may see
  float* partials = nullptr;    // [n_heads, n_segments, head_dim + 2]
  uint32_t* arrived = nullptr;  // [n_heads] zeros, and zeros again afterwards
  GatherTask send = {};         // of a shard: y goes to the others too
  bool lets_early = true;       // the next kernel start, ahead of the wait for the one before
};
// By a row of the table of attention, of one token and mode exact (kernels/attention_table.h).
void decode_attention(AttentionKernel kernel, const DecodeAttention& attention, const Queue& queue);

}  // namespace assay::backend::cuda
