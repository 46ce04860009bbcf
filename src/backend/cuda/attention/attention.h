// Attention on the device (contract: ops/attention/attention.h). All kernels have the contract's segments of 256 keys;
// they differ in who shares keys:
//
//   attention_tiles     a tile of up to 16 tokens     a block of threads walks its segments; thread t scores key t     any shape
//   attention_prefill   64 queries that share keys    a warp 16 queries; keys and values as floats in shared memory    f16, several heads
//   attention_hopper    the same                      8 warps multiply, 4 feed a ring of stages                        heads of 64 and 128
//   attention_split     one token                     a block a segment: scores, softmax, values --> partials
//   attention_alone     one token                     the same for several heads that share keys
//   attention_merge     partials, in order of the segments --> y
//
//   scores: chains over a head's elements, registers --> p [256], shared memory --> values: chains over the keys --> (m, l, o) of the segment
#pragma once

#include <cstdint>

#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/kernels/attention_table.h"
#include "backend/cuda/kernels/limits.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

inline constexpr int kTileTokens = 16;  // queries of a block of threads where many tokens run

// Up to kTileTokens consecutive tokens of one sequence.
struct TokenTile {
  int32_t token = 0, n = 0;  // first token of the batch, how many
  int32_t sequence = 0, position = 0;
};

struct AttentionTask {
  CacheView cache;
  const float* q = nullptr;  // [n_tokens, n_heads, head_dim]
  float* y = nullptr;        // the same
  int64_t n_heads = 0, window = 0;
  float scale = 0;
  const TokenTile* tiles = nullptr;  // on the device
  int64_t n_tiles = 0;
  int64_t n_segments = 0;     // that any of the queries may see
  int32_t tile_keys = 0;      // set when the kernel is started: keys whose values are staged at a time
  float* partials = nullptr;  // where tiles are of one token: [n_tiles, n_heads, n_segments, head_dim + 2]
};

// Each takes what its rows of the table take (kernels/attention_table.h), of one tile or more.
// Tiles of up to kTileTokens tokens; each block of threads walks its segments.
void attention_tiles(const AttentionTask& task, const Queue& queue);
// The same where the cache is f16 and heads are of 64, 128 or 256, many times as fast.
void attention_prefill(const AttentionTask& task, const Queue& queue);
// The same on Hopper, for all types of cache and heads of 64 and 128, faster still.
void attention_hopper(const AttentionTask& task, const Queue& queue);
// Tiles of one token; the segments of a query are worked on side by side, into partials. Their merge, alone or with the
// integers of the result (merge_rows of fused.h), gives y.
void attention_split(const AttentionTask& task, const Queue& queue);
// The same for heads of 8 n elements (32 n with a q8_0 cache), which share the reading of their keys.
void attention_alone(const AttentionTask& task, const Queue& queue);
// The kernel of a row for tiles, or for tokens that are alone; nothing for no tile.
void launch_attention(const AttentionRow& row, const AttentionTask& task, const Queue& queue);
void attention_merge(const AttentionTask& task, const Queue& queue);

}  // namespace assay::backend::cuda
