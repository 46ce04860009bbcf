// A head in shared memory into the cache. The includer has `head`, of kDim elements.
#ifndef ASSAY_KEEP_HEAD_GLSL
#define ASSAY_KEEP_HEAD_GLSL

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
void keep_head(Words cache, uint type, uint place) {
  const uint thread = gl_LocalInvocationIndex, n_threads = gl_WorkGroupSize.x;
  if (type == kCacheF32) {
    for (uint j = thread; j < kDim; j += n_threads) cache.at[place + j] = floatBitsToUint(head[j]);
  } else if (type == kCacheF16) {
    for (uint j = thread; j < kDim / 2u; j += n_threads) cache.at[place + j] = float_to_half(head[2u * j]) | (float_to_half(head[2u * j + 1u]) << 16);
  } else {
    for (uint w = thread; w < kDim / 64u * 17u; w += n_threads) cache.at[place + w] = encoded_word(w);
  }
}

// Element j of the head as the cache gives it back.
float kept_element(uint type, uint j) {
  if (type == kCacheF32) return head[j];
  if (type == kCacheF16) return half_to_float(float_to_half(head[j]));
  const uint block = j / 32u, at = 34u * block;
  const uint step = encoded_byte(at) | (encoded_byte(at + 1u) << 8);
  return mul_normal(half_to_float(step), float(bitfieldExtract(int(encoded_byte(at + 2u + j % 32u)), 0, 8)));
}

#endif
