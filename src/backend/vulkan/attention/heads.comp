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
#include "num/seen.glsl"

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

#include "num/block_steps.glsl"  // of the cache: at once

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

#include "num/seen_names.glsl"
#include "attention/turn_head.glsl"
#include "num/plain_names.glsl"
#include "attention/turn_head.glsl"

void main() {
  turn_head_seen();
  if (has_risky()) turn_head();
}
