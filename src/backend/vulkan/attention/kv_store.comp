#version 460
// Rows of keys or values into the cache (ops/attention/kv_store.h). An invocation writes whole words: an f32, two f16, or 17 words with two
// blocks of q8_0.
//
//   workgroup: a token     x [token][elements of all heads] --> registers --> the cache's row [sequence][position]
//   invocation i           words i, i + 64, ..; of q8_0 pairs of blocks, 17 words each
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "attention/cache.glsl"
#include "num/steps.glsl"
#include "num/block_steps.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 10) const uint kType = kCacheF16;

layout(push_constant) uniform Push {
  Floats x;
  Words cache;
  Ints positions, sequences;
  uint n_ctx, width;  // width: elements of all heads
} push;

// Byte `at` of the words on.
void encode_block(uint from, inout uint words[17], uint at) {
  uint most = 0u;
  for (uint j = 0u; j < 32u; ++j) most = max(most, magnitude_of(push.x.at[from + j]));
  const vec2 steps = block_steps(most);
  words[at / 4u] |= float_to_half(steps.x) << (8u * (at & 3u));
  for (uint j = 0u; steps.y != 0.0 && j < 32u; ++j) words[(at + 2u + j) / 4u] |= quantised(push.x.at[from + j], steps.y) << (8u * ((at + 2u + j) & 3u));
}

void main() {
  const uint token = gl_WorkGroupID.x;
  const uint place = (uint(push.sequences.at[token]) * push.n_ctx + uint(push.positions.at[token])) * (cache_row_bytes(kType, push.width) / 4u);
  if (kType == kCacheQ8_0) {
    for (uint pair = gl_LocalInvocationID.x; pair < push.width / 64u; pair += 64u) {
      uint words[17];
      for (uint i = 0u; i < 17u; ++i) words[i] = 0u;
      encode_block(token * push.width + 64u * pair, words, 0u);
      encode_block(token * push.width + 64u * pair + 32u, words, 34u);
      for (uint i = 0u; i < 17u; ++i) push.cache.at[place + 17u * pair + i] = words[i];
    }
  } else if (kType == kCacheF16) {
    for (uint i = gl_LocalInvocationID.x; i < push.width / 2u; i += 64u) {
      const uint from = token * push.width + 2u * i;
      push.cache.at[place + i] = float_to_half(push.x.at[from]) | (float_to_half(push.x.at[from + 1u]) << 16);
    }
  } else {
    for (uint i = gl_LocalInvocationID.x; i < push.width; i += 64u) push.cache.at[place + i] = floatBitsToUint(push.x.at[token * push.width + i]);
  }
}
