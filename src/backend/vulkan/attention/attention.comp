#version 460
// Attention of one query head over the cache (ops/attention/attention.h), segment by segment of 256 positions. ASSAY_OPERATION 0: all of them by one workgroup;
// for few tokens and long texts 1: each by its own, which leaves maximum, sum and values; and 2: these become one. 3, of one token: 0 together with what heads.comp
// does ahead of it; each workgroup turns the key of its query head by itself, and one of those that share it keeps key and value. 4: 0 for those that
// attention_tile.comp marked.
//
//   workgroup: one head of one token       scores     an invocation has whole chains: keys i, i + 128
//                                          exp, sum   32 lanes
//                                          values     an invocation has elements j, j + 128, ..: chains over the keys
//
//   storage   q --> shared `query`      keys --> registers --> shared `p` (256 scores, then probabilities)
//             values, with `p` --> registers: m, l, y, segment by segment --> y; of operation 1 all three
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "attention/cache.glsl"
#include "num/steps.glsl"
#include "num/seen.glsl"

const uint kThreads = 128u, kSegment = 256u;
layout(local_size_x = 128) in;
layout(constant_id = 10) const uint kTypeK = kCacheF16;
layout(constant_id = 11) const uint kTypeV = kCacheF16;
layout(constant_id = 12) const uint kElements = 1u;  // of a value that an invocation has at most
layout(constant_id = 13) const uint kSoftcap = 0u;
layout(constant_id = 14) const uint kDim = 64u;      // of a key
#if ASSAY_OPERATION == 4
layout(constant_id = 15) const uint kQueries = 16u;  // of a tile
#endif

#if ASSAY_OPERATION == 3
layout(constant_id = 15) const uint kRotated = 64u;  // as in heads.comp
layout(constant_id = 16) const uint kInterleaved = 0u;
layout(constant_id = 17) const uint kNorms = 0u;
layout(constant_id = 18) const float kEpsQ = 0.0;
layout(constant_id = 19) const float kEpsK = 0.0;
layout(constant_id = 20) const uint kHeads = 1u;     // what the others are given by push constants
layout(constant_id = 21) const uint kKvHeads = 1u;
layout(constant_id = 22) const uint kCtx = 1u;
layout(constant_id = 23) const uint kWindow = 0u;
layout(constant_id = 24) const uint kChunk = 0u;
layout(constant_id = 25) const uint kFlags = 0u;
layout(constant_id = 26) const float kScale = 1.0;
layout(constant_id = 27) const float kCap = 0.0;
layout(constant_id = 28) const uint kBatch = 1u;     // tokens for which there is room behind `positions`, then come sequences
layout(push_constant) uniform Push {
  Floats q, k_floats, v_floats, q_y, k_y;
  Words k, v;                              // of the cache
  Floats table, q_w, k_w, q_norm, k_norm;  // as in heads.comp
  Floats sinks, y;
  Ints positions;
} push;
#define N_HEADS kHeads
#define N_KV_HEADS kKvHeads
#define V_DIM kDim
#define V_ROW_DIM kDim
#define N_CTX kCtx
#define WINDOW kWindow
#define CHUNK kChunk
#define FLAGS kFlags
#define SCALE kScale
#define CAP kCap
#else
layout(push_constant) uniform Push {
  Floats q;
  Words k, v;  // of operation 2: v the segments
  Floats sinks, y;  // of operation 1: y the segments
  Ints positions, sequences, n_positions;  // n_positions: of each sequence, once the batch has run
  uint n_heads, n_kv_heads, v_dim, v_row_dim, n_ctx, window, chunk, flags;
  float scale, cap;
  uint n_tokens, heads_log2;  // of operation 4, and what follows
  Words marks;
} push;
#define N_HEADS push.n_heads
#define N_KV_HEADS push.n_kv_heads
#define V_DIM push.v_dim
#define V_ROW_DIM push.v_row_dim
#define N_CTX push.n_ctx
#define WINDOW push.window
#define CHUNK push.chunk
#define FLAGS push.flags
#define SCALE push.scale
#define CAP push.cap
#endif

shared float p[256];
shared float parts[128];
shared float query[kDim];
#if ASSAY_OPERATION == 3
shared float head[kDim], own_key[kDim], own_value[kDim];  // own_: of the token, as the cache gives them back
shared float lanes[32];
shared uint row_has_small;
#define ASSAY_ROW head
#define ASSAY_ROW_WIDTH kDim
#include "attention/keep_head.glsl"
#endif
shared uint small_query, small_p;  // some are not 0 and below 2^-79: products with what a cache keeps may be subnormal

// The workgroup's.
uint token, i_head, sequence, kv_head;
uvec2 range;  // the first and the last visible position
// What it has so far: maximum, sum, and of the values the invocation's elements.
float m, l, y[kElements];
bool started;

#include "attention/visible.glsl"

void find_place() {
#if ASSAY_OPERATION != 4
  token = gl_WorkGroupID.y;
  i_head = gl_WorkGroupID.x % N_HEADS;
#endif
#if ASSAY_OPERATION == 3
  sequence = uint(push.positions.at[kBatch]);
  range = visible(uint(push.positions.at[0]), 0u);
#else
  sequence = uint(push.sequences.at[token]);
  range = visible(uint(push.positions.at[token]), uint(push.n_positions.at[sequence]));
#endif
  kv_head = i_head / (N_HEADS / N_KV_HEADS);
  m = l = 0.0;
  started = false;
  for (uint i = 0u; i < kElements; ++i) y[i] = 0.0;
}

#if ASSAY_OPERATION != 3
void load_query() {
  const uint thread = gl_LocalInvocationID.x, begin = (token * N_HEADS + i_head) * kDim;
  if (thread == 0u) small_query = 0u;
  barrier();
  for (uint j = thread; j < kDim; j += kThreads) {
    query[j] = push.q.at[begin + j];
    if (is_small(query[j], -79)) small_query = 1u;
  }
  barrier();
}
#endif

uint segment_words() { return 2u + V_DIM; }
// Where a head's segment lies, of those that are joined later.
uint segment_place(uint i, uint n) { return ((token * N_HEADS + i_head) * n + i) * segment_words(); }

#if ASSAY_OPERATION == 4
#include "attention/attend.glsl"

void main() {
  const uint first_token = (gl_NumWorkGroups.y - 1u - gl_WorkGroupID.y) * (kQueries >> push.heads_log2), first_head = gl_WorkGroupID.x << push.heads_log2;
  for (uint marked = push.marks.at[gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x]; marked != 0u; marked &= marked - 1u) {
    const uint query = uint(findLSB(marked));
    token = first_token + (query >> push.heads_log2);
    i_head = first_head + (query & ((1u << push.heads_log2) - 1u));
    if (query < kQueries && token < push.n_tokens) attend();
  }
}
#else
#include "num/seen_names.glsl"
#include "attention/attend.glsl"
#include "num/plain_names.glsl"
#include "attention/attend.glsl"

void main() {
  attend_seen();
  if (has_risky()) attend();
}
#endif
