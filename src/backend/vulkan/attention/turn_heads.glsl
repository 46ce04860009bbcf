// The body of heads.comp. Included once for each set of names (num/seen.glsl).
#include "attention/turn_head.glsl"

void turn_heads() {
  const uint thread = gl_LocalInvocationIndex, token = gl_WorkGroupID.y;
  const bool is_key = gl_WorkGroupID.x >= push.n_heads;
  const uint index = is_key ? gl_WorkGroupID.x - push.n_heads : gl_WorkGroupID.x;
  const uint begin = (token * (is_key ? push.n_kv_heads : push.n_heads) + index) * kDim, position = uint(push.positions.at[token]);
  if (is_key) {
    turn_head(push.k, begin, (kNorms & 2u) != 0u, kEpsK, push.k_w, push.k_norm, true, position);
  } else {
    turn_head(push.q, begin, (kNorms & 1u) != 0u, kEpsQ, push.q_w, push.q_norm, true, position);
  }
  Floats y = is_key ? push.k_y : push.q_y;
  for (uint j = thread; j < kDim; j += gl_WorkGroupSize.x) y.at[begin + j] = head[j];
  if (!is_key) return;
  const uint place = (uint(push.positions.at[push.sequences + token]) * push.n_ctx + position) * push.n_kv_heads + index;
  keep_head(push.cache_k, kTypeK, place * (cache_row_bytes(kTypeK, kDim) / 4u));
  barrier();
  for (uint j = thread; j < kDim; j += gl_WorkGroupSize.x) head[j] = push.v.at[begin + j];
  barrier();
  keep_head(push.cache_v, kTypeV, place * (cache_row_bytes(kTypeV, kDim) / 4u));
}
