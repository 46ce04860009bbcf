#version 460
// Attention of one query head over the cache (ops/attention/attention.h), segment by segment of 256 positions. ASSAY_OPERATION 0: all of them by one workgroup;
// for few tokens and long texts 1: each by its own, which leaves maximum, sum and values; and 2: these become one.
//
//   workgroup: one head of one token       scores     an invocation has whole chains: keys i, i + 128
//                                          exp, sum   32 lanes
//                                          values     an invocation has elements j, j + 128, ..: chains over the keys
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "attention/cache.glsl"
#include "num/seen.glsl"

const uint kThreads = 128u, kSegment = 256u;
layout(local_size_x = 128) in;
layout(constant_id = 10) const uint kTypeK = kCacheF16;
layout(constant_id = 11) const uint kTypeV = kCacheF16;
layout(constant_id = 12) const uint kElements = 1u;  // of a value that an invocation has at most
layout(constant_id = 13) const uint kSoftcap = 0u;
layout(constant_id = 14) const uint kDim = 64u;      // of a key
const uint kCausal = 1u, kSink = 2u;  // flags

layout(push_constant) uniform Push {
  Floats q;
  Words k, v;  // of operation 2: v the segments
  Floats sinks, y;  // of operation 1: y the segments
  Ints positions, sequences, n_positions;  // n_positions: of each sequence, once the batch has run
  uint n_heads, n_kv_heads, v_dim, v_row_dim, n_ctx, window, chunk, flags;
  float scale, cap;
} push;

shared float p[256];
shared float parts[128];
shared float query[kDim];
shared uint small_query, small_p;  // some are not 0 and below 2^-79: products with what a cache keeps may be subnormal

// The workgroup's.
uint token, head, sequence, kv_head;
uvec2 range;  // the first and the last visible position
// What it has so far: maximum, sum, and of the values the invocation's elements.
float m, l, y[kElements];
bool started;

uvec2 visible(uint position, uint n_positions) {
  if ((push.flags & kCausal) == 0u) {
    const uint reach = push.window / 2u;
    return uvec2(push.window > 0u && position > reach ? position - reach : 0u,
                 push.window > 0u && position + reach < n_positions ? position + reach : n_positions - 1u);
  }
  const uint in_window = push.window > 0u && position >= push.window ? position - push.window + 1u : 0u;
  return uvec2(max(in_window, push.chunk > 0u ? position / push.chunk * push.chunk : 0u), position);
}

void find_place() {
  token = gl_WorkGroupID.y;
  head = gl_WorkGroupID.x % push.n_heads;
  sequence = uint(push.sequences.at[token]);
  kv_head = head / (push.n_heads / push.n_kv_heads);
  range = visible(uint(push.positions.at[token]), uint(push.n_positions.at[sequence]));
  m = l = 0.0;
  started = false;
  for (uint i = 0u; i < kElements; ++i) y[i] = 0.0;
}

void load_query() {
  const uint thread = gl_LocalInvocationID.x, begin = (token * push.n_heads + head) * kDim;
  if (thread == 0u) small_query = 0u;
  barrier();
  for (uint j = thread; j < kDim; j += kThreads) {
    query[j] = push.q.at[begin + j];
    if (is_small(query[j], -79)) small_query = 1u;
  }
  barrier();
}

uint segment_words() { return 2u + push.v_dim; }
// Where a head's segment lies, of those that are joined later.
uint segment_place(uint i, uint n) { return ((token * push.n_heads + head) * n + i) * segment_words(); }

#include "num/seen_names.glsl"
#include "attention/attend.glsl"
#include "num/plain_names.glsl"
#include "attention/attend.glsl"

void main() {
  attend_seen();
  if (has_risky()) attend();
}
