// The body of attention.comp. Included once for each set of names (num/seen.glsl).

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
  sum = mul(sum, push.scale);
  return kSoftcap != 0u ? softcap(sum, push.cap) : sum;
}

// Element j of the values at the n positions from `row` on, by p.
float value_of(uint row, uint n, uint j) {
  const uint v_row = cache_row_bytes(kTypeV, push.v_row_dim), step = push.n_kv_heads * v_row;
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
    return o;
  }
  for (; t < n; ++t) o = fused(p[t], cache_element(push.v, kTypeV, begin + t * step, j), o);
  return o;
}

// A segment's maximum and sum, and p.
vec2 segment_scores(uint begin, uint n, uint first_row) {
  const uint thread = gl_LocalInvocationID.x, k_row = cache_row_bytes(kTypeK, kDim);
  barrier();  // the segment before is done with
  if (thread == 0u) small_p = 0u;
  float most = uintBitsToFloat(0xFF800000u);
  for (uint i = thread; i < n; i += kThreads) {
    p[i] = score((first_row + i * push.n_kv_heads) * k_row);
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
  if ((push.flags & kSink) != 0u) {
    const float sink = push.sinks.at[head];
    const float m_both = is_greater(sink, m) ? sink : m;
    factor = exponential(sub(m, m_both));
    l = fused(l, factor, exponential(sub(sink, m_both)));
  }
  for (uint i = 0u; i < kElements; ++i) {
    const uint j = gl_LocalInvocationID.x + i * kThreads;
    if (j >= push.v_dim) break;
    const float o = (push.flags & kSink) != 0u ? mul(y[i], factor) : y[i];
    push.y.at[(token * push.n_heads + head) * push.v_dim + j] = quotient(o, l);
  }
}

#if ASSAY_OPERATION == 2
void attend() {
  find_place();
  const uint n = push.n_ctx, n_here = range.y / kSegment - range.x / kSegment + 1u;  // n: for which there is room
  for (uint s = 0u; s < n_here; ++s) {
    const uint place = segment_place(s, n);
    const vec2 of_segment = vec2(uintBitsToFloat(push.v.at[place]), uintBitsToFloat(push.v.at[place + 1u]));
    const vec2 weights = joining(of_segment);
    for (uint i = 0u; i < kElements; ++i) {
      const uint j = gl_LocalInvocationID.x + i * kThreads;
      if (j >= push.v_dim) break;
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
  const uint i_segment = gl_WorkGroupID.x / push.n_heads, n_segments = gl_NumWorkGroups.x / push.n_heads;
  if (range.x / kSegment + i_segment > range.y / kSegment) return;
#endif
  load_query();
  uint begin = range.x;
#if ASSAY_OPERATION == 1
  begin = max(begin, (range.x / kSegment + i_segment) * kSegment);
#endif
  for (uint end; begin <= range.y; begin = end) {
    end = min(range.y + 1u, (begin / kSegment + 1u) * kSegment);
    const uint first_row = (sequence * push.n_ctx + begin) * push.n_kv_heads + kv_head;  // of the segment's first key
    const vec2 of_segment = segment_scores(begin, end - begin, first_row);
#if ASSAY_OPERATION == 1
    const uint place = segment_place(i_segment, n_segments);
    if (thread == 0u) {
      push.y.at[place] = of_segment.x;
      push.y.at[place + 1u] = of_segment.y;
    }
    for (uint j = thread; j < push.v_dim; j += kThreads) push.y.at[place + 2u + j] = value_of(first_row, end - begin, j);
    return;
#else
    const vec2 weights = joining(of_segment);
    for (uint i = 0u; i < kElements; ++i) {
      const uint j = thread + i * kThreads;
      if (j >= push.v_dim) break;
      float o = value_of(first_row, end - begin, j);
      if (started) o = fused(y[i], weights.x, mul(o, weights.y));
      y[i] = o;
    }
    started = true;
#endif
  }
#if ASSAY_OPERATION == 0
  finish();
#endif
}
#endif
