#version 460
// What happens to heads ahead of attention (lower::FusionGroup, kind heads): [norm of each head,] rotation, and keys and values into the cache.
//
//   workgroup: a head of a token     | query heads: norm, rotate -> y | key heads: norm, rotate -> y, cache; the value as it is -> cache |
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "attention/cache.glsl"
#include "num/steps.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 10) const uint kTypeK = kCacheF16;
layout(constant_id = 11) const uint kTypeV = kCacheF16;
layout(constant_id = 12) const uint kDim = 64u;      // of a head
layout(constant_id = 13) const uint kRotated = 64u;  // elements of it that turn
layout(constant_id = 14) const uint kInterleaved = 0u;
layout(constant_id = 15) const uint kNorms = 0u;     // bit 0: of query heads, bit 1: of key heads
layout(constant_id = 16) const float kEpsQ = 0.0;
layout(constant_id = 17) const float kEpsK = 0.0;

layout(push_constant) uniform Push {
  Floats q, k, v, q_y, k_y;
  Words cache_k, cache_v;
  Floats table, q_w, k_w, q_norm, k_norm;  // table: a row a position, cosines, then sines; _norm: what the norms give
  Ints positions;                          // and, from `sequences` on, the sequences
  uint sequences, n_heads, n_kv_heads, n_ctx;
} push;

shared float head[kDim];
shared float lanes[32];

// Byte i of the head in q8_0: 34 of each block, the scale first.
uint encoded_byte(uint i) {
  const uint block = i / 34u, at = i % 34u;
  uint most = 0u;
  for (uint j = 0u; j < 32u; ++j) most = max(most, magnitude_of(head[32u * block + j]));
  const vec2 steps = block_steps(most);
  if (at < 2u) return (float_to_half(steps.x) >> (8u * at)) & 0xFFu;
  return steps.y != 0.0 ? quantised(head[32u * block + at - 2u], steps.y) : 0u;
}
uint encoded_word(uint w) {
  uint word = 0u;
  for (uint i = 0u; i < 4u; ++i) word |= encoded_byte(4u * w + i) << (8u * i);
  return word;
}

// The head into the cache, by all invocations: whole words of it, of q8_0 two blocks together.
void encode_head(Words cache, uint type, uint place, uint thread) {
  if (type == kCacheF32) {
    for (uint j = thread; j < kDim; j += 64u) cache.at[place + j] = floatBitsToUint(head[j]);
  } else if (type == kCacheF16) {
    for (uint j = thread; j < kDim / 2u; j += 64u) cache.at[place + j] = float_to_half(head[2u * j]) | (float_to_half(head[2u * j + 1u]) << 16);
  } else {
    for (uint w = thread; w < kDim / 64u * 17u; w += 64u) cache.at[place + w] = encoded_word(w);
  }
}

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

void main() {
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
