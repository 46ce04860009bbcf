// The body of heads.comp. Included once for each set of names (num/seen.glsl).

// Lanes32, as ops/rows/rms_norm.h has it.
float inverse_root(float eps) {
  const uint lane = gl_LocalInvocationIndex;
  if (lane < 32u) {
    float sum = 0.0;
    for (uint j = lane; j < kDim; j += 32u) sum = fused(head[j], head[j], sum);
    lanes[lane] = sum;
  }
  for (uint width = 16u; width >= 1u; width /= 2u) {
    barrier();
    if (lane < width) lanes[lane] = add(lanes[lane], lanes[lane + width]);
  }
  barrier();
  return quotient(1.0, root(add(quotient(lanes[0], float(kDim)), eps)));
}

void turn_head() {
  const uint thread = gl_LocalInvocationIndex, token = gl_WorkGroupID.y;
  const bool is_key = gl_WorkGroupID.x >= push.n_heads;
  const uint index = is_key ? gl_WorkGroupID.x - push.n_heads : gl_WorkGroupID.x;
  const uint begin = (token * (is_key ? push.n_kv_heads : push.n_heads) + index) * kDim;
  Floats x = is_key ? push.k : push.q, y = is_key ? push.k_y : push.q_y;
  for (uint j = thread; j < kDim; j += 64u) head[j] = x.at[begin + j];
  barrier();
  if ((kNorms & (is_key ? 2u : 1u)) != 0u) {
    const float r = inverse_root(is_key ? kEpsK : kEpsQ);
    Floats w = is_key ? push.k_w : push.q_w, normed = is_key ? push.k_norm : push.q_norm;
    for (uint j = thread; j < kDim; j += 64u) normed.at[begin + j] = head[j] = mul(mul(head[j], r), w.at[j]);
    barrier();
  }
  const uint position = uint(push.positions.at[token]), angles = position * kRotated;
  for (uint i = thread; i < kRotated / 2u; i += 64u) {
    const uint a = kInterleaved != 0u ? 2u * i : i, b = kInterleaved != 0u ? 2u * i + 1u : i + kRotated / 2u;
    const float x_a = head[a], x_b = head[b], cosine = push.table.at[angles + i], sine = push.table.at[angles + kRotated / 2u + i];
    head[a] = fused(x_a, cosine, negated(mul(x_b, sine)));
    head[b] = fused(x_a, sine, mul(x_b, cosine));
  }
  barrier();
  for (uint j = thread; j < kDim; j += 64u) y.at[begin + j] = head[j];
  if (!is_key) return;
  const uint place = (uint(push.positions.at[push.sequences + token]) * push.n_ctx + position) * push.n_kv_heads + index;
  encode_head(push.cache_k, kTypeK, place * (cache_row_bytes(kTypeK, kDim) / 4u), thread);
  barrier();
  for (uint j = thread; j < kDim; j += 64u) head[j] = push.v.at[begin + j];
  barrier();
  encode_head(push.cache_v, kTypeV, place * (cache_row_bytes(kTypeV, kDim) / 4u), thread);
}
