#version 460
// Attention of one query head over the cache (ops/attention/attention.h), segment by segment of 256 positions.
//
//   workgroup: one head of one token       scores     an invocation has whole chains: keys i, i + 128
//                                          exp, sum   32 lanes
//                                          values     an invocation has elements j, j + 128, ..: chains over the keys
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "attention/cache.glsl"

const uint kThreads = 128u, kSegment = 256u;
layout(local_size_x = 128) in;
layout(constant_id = 10) const uint kTypeK = kCacheF16;
layout(constant_id = 11) const uint kTypeV = kCacheF16;
layout(constant_id = 12) const uint kElements = 1u;  // of a value that an invocation has at most
layout(constant_id = 13) const uint kSoftcap = 0u;
const uint kCausal = 1u, kSink = 2u;  // flags

layout(push_constant) uniform Push {
  Floats q;
  Words k, v;
  Floats sinks, y;
  Ints positions, sequences, n_positions;  // n_positions: of each sequence, once the batch has run
  uint n_heads, n_kv_heads, head_dim, v_dim, v_row_dim, n_ctx, window, chunk, flags;
  float scale, softcap;
} push;

shared float p[256];
shared float parts[128];

float score(uint query, uint row) {
  float sum = 0.0;
  for (uint j = 0u; j < push.head_dim; ++j) sum = fused(push.q.at[query + j], cache_element(push.k, kTypeK, row, j), sum);
  sum = mul(sum, push.scale);
  return kSoftcap != 0u ? softcap(sum, push.softcap) : sum;
}

uvec2 visible(uint position, uint n_positions) {  // first and last
  if ((push.flags & kCausal) == 0u) {
    const uint reach = push.window / 2u;
    return uvec2(push.window > 0u && position > reach ? position - reach : 0u,
                 push.window > 0u && position + reach < n_positions ? position + reach : n_positions - 1u);
  }
  const uint in_window = push.window > 0u && position >= push.window ? position - push.window + 1u : 0u;
  return uvec2(max(in_window, push.chunk > 0u ? position / push.chunk * push.chunk : 0u), position);
}

void main() {
  const uint thread = gl_LocalInvocationID.x, head = gl_WorkGroupID.x, token = gl_WorkGroupID.y;
  const uint sequence = uint(push.sequences.at[token]);
  const uvec2 range = visible(uint(push.positions.at[token]), uint(push.n_positions.at[sequence]));
  const uint query = (token * push.n_heads + head) * push.head_dim, kv_head = head / (push.n_heads / push.n_kv_heads);
  const uint k_row = cache_row_bytes(kTypeK, push.head_dim), v_row = cache_row_bytes(kTypeV, push.v_row_dim);
  float y[kElements];
  for (uint i = 0u; i < kElements; ++i) y[i] = 0.0;
  float m = 0.0, l = 0.0;
  bool started = false;
  for (uint begin = range.x; begin <= range.y;) {
    const uint end = min(range.y + 1u, (begin / kSegment + 1u) * kSegment);
    const uint first_row = (sequence * push.n_ctx + begin) * push.n_kv_heads + kv_head;  // of the segment's first key
    float most = uintBitsToFloat(0xFF800000u);
    for (uint i = thread; i < end - begin; i += kThreads) {
      p[i] = score(query, (first_row + i * push.n_kv_heads) * k_row);
      most = is_greater(p[i], most) ? p[i] : most;
    }
    parts[thread] = most;
    for (uint width = kThreads / 2u; width >= 1u; width /= 2u) {
      barrier();
      if (thread < width && is_greater(parts[thread + width], parts[thread])) parts[thread] = parts[thread + width];
    }
    barrier();
    const float m_segment = parts[0];
    for (uint i = thread; i < end - begin; i += kThreads) p[i] = exponential(sub(p[i], m_segment));
    barrier();
    if (thread < 32u) {
      float sum = 0.0;
      for (uint i = (thread - begin) & 31u; i < end - begin; i += 32u) sum = add(sum, p[i]);  // the key at position t is in lane t % 32
      parts[thread] = sum;
    }
    for (uint width = 16u; width >= 1u; width /= 2u) {
      barrier();
      if (thread < width) parts[thread] = add(parts[thread], parts[thread + width]);
    }
    barrier();
    const float l_segment = parts[0];
    const float m_both = is_greater(m_segment, m) ? m_segment : m;
    const float a = exponential(sub(m, m_both)), b = exponential(sub(m_segment, m_both));
    for (uint i = 0u; i < kElements; ++i) {
      const uint j = thread + i * kThreads;
      if (j >= push.v_dim) break;
      float o = 0.0;
      for (uint t = 0u; t < end - begin; ++t) o = fused(p[t], cache_element(push.v, kTypeV, (first_row + t * push.n_kv_heads) * v_row, j), o);
      y[i] = started ? fused(y[i], a, mul(o, b)) : o;
    }
    l = started ? fused(l, a, mul(l_segment, b)) : l_segment;
    m = started ? m_both : m_segment;
    started = true;
    begin = end;
    barrier();  // before the next segment's scores
  }
  float factor = 1.0;
  if ((push.flags & kSink) != 0u) {
    const float sink = push.sinks.at[head];
    const float m_both = is_greater(sink, m) ? sink : m;
    factor = exponential(sub(m, m_both));
    l = fused(l, factor, exponential(sub(sink, m_both)));
  }
  for (uint i = 0u; i < kElements; ++i) {
    const uint j = thread + i * kThreads;
    if (j >= push.v_dim) break;
    const float o = (push.flags & kSink) != 0u ? mul(y[i], factor) : y[i];
    push.y.at[(token * push.n_heads + head) * push.v_dim + j] = quotient(o, l);
  }
}
