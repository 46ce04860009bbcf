// The body of attention.comp. Included once for each set of names (num/seen.glsl).
#if ASSAY_OPERATION == 3
#include "attention/turn_head.glsl"

// The query, and the token's own key and value: turned, into the cache, and as it gives them back.
void turn_own() {
  const uint thread = gl_LocalInvocationID.x, position = range.y;
  const bool keeps = i_head % (N_HEADS / N_KV_HEADS) == 0u;
  const uint place = (sequence * N_CTX + position) * N_KV_HEADS + kv_head;
  barrier();  // whoever computes this again has read what is shared
  turn_head(push.k_floats, kv_head * kDim, (kNorms & 2u) != 0u, kEpsK, push.k_w, push.k_norm, keeps, position);
  for (uint j = thread; j < kDim; j += kThreads) {
    own_key[j] = kept_element(kTypeK, j);
    if (keeps) push.k_y.at[kv_head * kDim + j] = head[j];
  }
  if (keeps) keep_head(push.k, kTypeK, place * (cache_row_bytes(kTypeK, kDim) / 4u));
  barrier();
  for (uint j = thread; j < kDim; j += kThreads) head[j] = push.v_floats.at[kv_head * kDim + j];
  barrier();
  for (uint j = thread; j < kDim; j += kThreads) own_value[j] = kept_element(kTypeV, j);
  if (keeps) keep_head(push.v, kTypeV, place * (cache_row_bytes(kTypeV, kDim) / 4u));
  barrier();
  turn_head(push.q, i_head * kDim, (kNorms & 1u) != 0u, kEpsQ, push.q_w, push.q_norm, true, position);
  if (thread == 0u) small_query = 0u;
  barrier();
  for (uint j = thread; j < kDim; j += kThreads) {
    query[j] = head[j];
    push.q_y.at[i_head * kDim + j] = head[j];
    if (is_small(head[j], -79)) small_query = 1u;
  }
  barrier();
}
#endif

float scaled(float sum) {
  sum = mul(sum, SCALE);
  return kSoftcap != 0u ? softcap(sum, CAP) : sum;
}
float score(uint row) {
  float sum = 0.0;
  if (!is_coarse(kTypeK) || small_query != 0u) {
    for (uint j = 0u; j < kDim; ++j) sum = fused(query[j], cache_element(push.k, kTypeK, row, j), sum);
  } else if (kTypeK == kCacheF16 && kDim % 8u == 0u) {
    for (uint j = 0u; j < kDim; j += 8u) {
      const uvec4 words = Vectors(push.k).at[(row + 2u * j) >> 4];
      for (uint i = 0u; i < 4u; ++i) {
        const vec2 keys = halves_to_floats(words[i]);
        sum = fused_normal(query[j + 2u * i + 1u], keys.y, fused_normal(query[j + 2u * i], keys.x, sum));
      }
    }
  } else {
    for (uint j = 0u; j < kDim; ++j) sum = fused_normal(query[j], cache_element(push.k, kTypeK, row, j), sum);
  }
  return scaled(sum);
}
#if ASSAY_OPERATION == 3
float own_score() {
  float sum = 0.0;
  if (!is_coarse(kTypeK) || small_query != 0u) {
    for (uint j = 0u; j < kDim; ++j) sum = fused(query[j], own_key[j], sum);
  } else {
    for (uint j = 0u; j < kDim; ++j) sum = fused_normal(query[j], own_key[j], sum);
  }
  return scaled(sum);
}
#endif

// Element j of the values at the n positions from `row` on, by p. is_last: the last of them is the token's own.
float value_of(uint row, uint n_all, uint j, bool is_last) {
  const uint n = is_last ? n_all - 1u : n_all;
  const uint v_row = cache_row_bytes(kTypeV, V_ROW_DIM), step = N_KV_HEADS * v_row;
  const uint begin = row * v_row;
  float o = 0.0;
  uint t = 0u;
  if (is_coarse(kTypeV) && small_p == 0u) {
    for (; t + 8u <= n; t += 8u) {
      float values[8];
      for (uint i = 0u; i < 8u; ++i) values[i] = cache_element(push.v, kTypeV, begin + (t + i) * step, j);
      for (uint i = 0u; i < 8u; ++i) o = fused_normal(p[t + i], values[i], o);
    }
    for (; t < n; ++t) o = fused_normal(p[t], cache_element(push.v, kTypeV, begin + t * step, j), o);
#if ASSAY_OPERATION == 3
    if (is_last) o = fused_normal(p[n], own_value[j], o);
#endif
    return o;
  }
  for (; t < n; ++t) o = fused(p[t], cache_element(push.v, kTypeV, begin + t * step, j), o);
#if ASSAY_OPERATION == 3
  if (is_last) o = fused(p[n], own_value[j], o);
#endif
  return o;
}

// A segment's maximum and sum, and p.
vec2 segment_scores(uint begin, uint n, uint first_row) {
  const uint thread = gl_LocalInvocationID.x, k_row = cache_row_bytes(kTypeK, kDim);
  barrier();  // the segment before is done with
  if (thread == 0u) small_p = 0u;
  float most = uintBitsToFloat(0xFF800000u);
  for (uint i = thread; i < n; i += kThreads) {
#if ASSAY_OPERATION == 3
    p[i] = begin + i == range.y ? own_score() : score((first_row + i * N_KV_HEADS) * k_row);
#else
    p[i] = score((first_row + i * N_KV_HEADS) * k_row);
#endif
    most = is_greater(p[i], most) ? p[i] : most;
  }
  parts[thread] = most;
  for (uint width = kThreads / 2u; width >= 1u; width /= 2u) {
    barrier();
    if (thread < width && is_greater(parts[thread + width], parts[thread])) parts[thread] = parts[thread + width];
  }
  barrier();
  const float most_of_all = parts[0];
  for (uint i = thread; i < n; i += kThreads) {
    p[i] = exponential(sub(p[i], most_of_all));
    if (is_small(p[i], -79)) small_p = 1u;
  }
  barrier();
  if (thread < 32u) {
    float sum = 0.0;
    for (uint i = (thread - begin) & 31u; i < n; i += 32u) sum = add(sum, p[i]);  // the key at position t is in lane t % 32
    parts[thread] = sum;
  }
  for (uint width = 16u; width >= 1u; width /= 2u) {
    barrier();
    if (thread < width) parts[thread] = add(parts[thread], parts[thread + width]);
  }
  barrier();
  return vec2(most_of_all, parts[0]);
}

// How what there is so far, and a segment, are weighted when they are joined.
vec2 joining(vec2 of_segment) {
  if (!started) {
    m = of_segment.x;
    l = of_segment.y;
    return vec2(0.0);
  }
  const float m_both = is_greater(of_segment.x, m) ? of_segment.x : m;
  const vec2 weights = vec2(exponential(sub(m, m_both)), exponential(sub(of_segment.x, m_both)));
  l = fused(l, weights.x, mul(of_segment.y, weights.y));
  m = m_both;
  return weights;
}

void finish() {
  float factor = 1.0;
  if ((FLAGS & kSink) != 0u) {
    const float sink = push.sinks.at[i_head];
    const float m_both = is_greater(sink, m) ? sink : m;
    factor = exponential(sub(m, m_both));
    l = fused(l, factor, exponential(sub(sink, m_both)));
  }
  for (uint i = 0u; i < kElements; ++i) {
    const uint j = gl_LocalInvocationID.x + i * kThreads;
    if (j >= V_DIM) break;
    const float o = (FLAGS & kSink) != 0u ? mul(y[i], factor) : y[i];
    push.y.at[(token * N_HEADS + i_head) * V_DIM + j] = quotient(o, l);
  }
}

#if ASSAY_OPERATION == 2
void attend() {
  find_place();
  const uint n = N_CTX, n_here = range.y / kSegment - range.x / kSegment + 1u;  // n: for which there is room
  for (uint s = 0u; s < n_here; ++s) {
    const uint place = segment_place(s, n);
    const vec2 of_segment = vec2(uintBitsToFloat(push.v.at[place]), uintBitsToFloat(push.v.at[place + 1u]));
    const vec2 weights = joining(of_segment);
    for (uint i = 0u; i < kElements; ++i) {
      const uint j = gl_LocalInvocationID.x + i * kThreads;
      if (j >= V_DIM) break;
      float o = uintBitsToFloat(push.v.at[place + 2u + j]);
      if (started) o = fused(y[i], weights.x, mul(o, weights.y));
      y[i] = o;
    }
    started = true;
  }
  finish();
}
#else
void attend() {
  const uint thread = gl_LocalInvocationID.x;
  find_place();
#if ASSAY_OPERATION == 1
  const uint i_segment = gl_WorkGroupID.x / N_HEADS, n_segments = gl_NumWorkGroups.x / N_HEADS;
  if (range.x / kSegment + i_segment > range.y / kSegment) return;
#endif
#if ASSAY_OPERATION == 3
  turn_own();
#else
  load_query();
#endif
  uint begin = range.x;
#if ASSAY_OPERATION == 1
  begin = max(begin, (range.x / kSegment + i_segment) * kSegment);
#endif
  for (uint end; begin <= range.y; begin = end) {
    end = min(range.y + 1u, (begin / kSegment + 1u) * kSegment);
    const uint first_row = (sequence * N_CTX + begin) * N_KV_HEADS + kv_head;  // of the segment's first key
    const vec2 of_segment = segment_scores(begin, end - begin, first_row);
#if ASSAY_OPERATION == 1
    const uint place = segment_place(i_segment, n_segments);
    if (thread == 0u) {
      push.y.at[place] = of_segment.x;
      push.y.at[place + 1u] = of_segment.y;
    }
    for (uint j = thread; j < V_DIM; j += kThreads) push.y.at[place + 2u + j] = value_of(first_row, end - begin, j, false);
    return;
#else
    const vec2 weights = joining(of_segment);
    for (uint i = 0u; i < kElements; ++i) {
      const uint j = thread + i * kThreads;
      if (j >= V_DIM) break;
      float o = value_of(first_row, end - begin, j, ASSAY_OPERATION == 3 && end > range.y);
      if (started) o = fused(y[i], weights.x, mul(o, weights.y));
      y[i] = o;
    }
    started = true;
#endif
  }
#if ASSAY_OPERATION != 1
  finish();
#endif
}
#endif
