#version 460
// What happens to heads ahead of attention (lower::FusionGroup, kind heads): [norm of each head,] rotation, and keys and values into the cache.
//
//   workgroup: a head of a token     | query heads: norm, rotate -> y | key heads: norm, rotate -> y, cache; the value as it is -> cache |
//
//   storage q, k --> shared `head`: norm (its sum in shared `lanes`), rotation --> y; key heads: --> cache
//   storage v    --> shared `head`, when the key has left it                   --> cache
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
shared uint row_has_small;
#define ASSAY_ROW head
#define ASSAY_ROW_WIDTH kDim

#include "attention/keep_head.glsl"

#include "num/seen_names.glsl"
#include "attention/turn_heads.glsl"
#include "num/plain_names.glsl"
#include "attention/turn_heads.glsl"

void main() {
  turn_heads_seen();
  if (has_risky()) turn_heads();
}
